//! All tests of crate `server` in one program: a program takes seconds to build and link, whatever its tests are.

mod client;

mod engine_events;
mod openai_chat;
mod server_documents;
mod server_faults;
mod server_keys;
mod server_limits;
mod server_load;
mod server_logprobs;
mod server_models;
mod server_priority;
mod server_routes;
mod server_stalls;
mod server_times;
