//! All tests of crate `session-store` in one program: a program takes seconds to build and link, whatever its tests are.

mod cache_files;
mod not_a_file;
mod restored;
mod shared_store;
mod version_1;
