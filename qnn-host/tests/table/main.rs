//! The backend as its clients see it: everything here goes through the two exported tables.

mod client;
mod hostile;
mod life;
mod objects;
mod parallel;
