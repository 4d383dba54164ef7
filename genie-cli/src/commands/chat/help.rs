//! What `/help` says.

/// The commands.
pub const TEXT: &str = "\
/clear            forget the conversation, keep the system message
/edit             change the last message; its reply is generated again
/exit             leave (also Ctrl-D)
/help             this list
/load DIR         continue a conversation that /save kept
/model BUNDLE     go on with another model
/regen            generate the last reply again
/save DIR         keep the conversation
/set NAME VALUE   temp, top-k, top-p, min-p, seed, max-tokens: any flag of sampling without its dashes
/stats            times and rates of the last reply
/system TEXT      set the system message; without a text, remove it
/undo             take the last message and its reply back

A line that ends in \\ goes on in the next one; \"\"\" begins and ends several lines. Ctrl-C stops a reply.";
