//! The policy file and its ruling on a call. Pure: knows no provider, no engine, no file system.

pub mod bounds;
mod brief;
pub mod calls;
pub mod cases;
pub mod changes;
pub mod closed;
pub mod codes;
pub mod decide;
pub mod exec;
pub mod explain;
pub mod files;
pub mod fit;
mod helpers;
pub mod hosts;
pub mod lint;
pub mod load;
pub mod model;
pub mod names;
mod nearest;
pub mod needs;
pub mod parse;
pub mod presets;
pub mod profiles;
pub mod protected;
pub mod rule;
pub mod secrets_like;
pub mod set;
pub mod shell;
pub mod suggest;
pub mod words;

pub use changes::{Author, ChangeRuling, rule_change};
pub use decide::{decide, decide_with, ruled_commands};
pub use load::{Source, check_names, load};
pub use model::{KnownTool, KnownTools, PolicySet, SandboxWish, Uses, WishedLevel};
pub use set::Protected;
