//! The admin socket: root or the daemon's own user asks, one JSON answer, end of conversation.
//!
//! A tenant in a container never sees this socket. Nothing here changes the core but through its
//! inputs.

use turnus_protocol::admin::AdminRequest;
use turnus_protocol::{decode, limits};

/// Bytes of the answer that go into one packet; the client reads until the end.
pub const PIECE_BYTES: usize = 32 << 10;

/// What was asked, or the JSON to answer at once.
pub fn understand(packet: &[u8], uid: u32, own_uid: u32) -> Result<AdminRequest, String> {
    if uid != 0 && uid != own_uid {
        return Err(refusal("only root and the daemon's own user may ask here"));
    }
    if packet.len() > limits::MESSAGE_BYTES_MAX {
        return Err(refusal("the request is too long"));
    }
    decode::<AdminRequest>(packet).map_err(|error| refusal(&error.to_string()))
}

/// The answer to a request that succeeded and has nothing to show.
pub fn done() -> String {
    serde_json::json!({ "done": true }).to_string()
}

/// The answer to a request that is refused.
pub fn refusal(text: &str) -> String {
    serde_json::json!({ "error": text }).to_string()
}
