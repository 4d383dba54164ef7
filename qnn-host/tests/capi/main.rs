//! The backend as its clients see it: everything here goes through the two exported tables.

mod client;
mod hostile;
mod lifecycle;
mod objects;
mod parallel;
