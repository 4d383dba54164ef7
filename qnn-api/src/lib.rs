//! Safe handles over a QNN library, loaded or linked in.
