//! The QNN C ABI: types, function tables, error numbers and a stub table.
