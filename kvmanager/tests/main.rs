//! All tests of crate `kvmanager` in one program: a program takes seconds to build and link, whatever its tests are.

mod actions;
mod effects;
mod naive;
mod setup;
mod toy;

mod crowded_windows;
mod examples;
mod first_fit;
mod keydiff;
mod long_context;
mod model;
