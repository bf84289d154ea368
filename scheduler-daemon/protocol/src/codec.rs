//! Messages to bytes and back, bounded in both directions.
//!
//! The format is postcard: enum positions and lengths as varints, no padding. Decoding never
//! panics, never allocates more than the packet's own length, and refuses trailing bytes, texts
//! over their bound and packets over [`MESSAGE_BYTES_MAX`]. `tests/golden.rs` pins the bytes.

use crate::limits::{MESSAGE_BYTES_MAX, TEXT_BYTES_MAX};
use serde::{Serialize, de::DeserializeOwned};

/// Why bytes are not a message, or a message has no bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// Longer than any message may be.
    #[error("packet of {0} bytes is longer than the {MESSAGE_BYTES_MAX} allowed")]
    TooLong(usize),
    /// Not this language, or damaged.
    #[error("packet is no message: {0}")]
    Malformed(String),
    /// A message followed by something.
    #[error("{0} bytes follow the message")]
    TrailingBytes(usize),
    /// A text inside the message breaks its bound.
    #[error("a text in the message is longer than {TEXT_BYTES_MAX} bytes")]
    TextTooLong,
}

/// Messages whose texts can be checked against their bound.
pub trait Bounded {
    /// The longest text inside, in bytes.
    fn longest_text_bytes(&self) -> usize;
}

/// The bytes of one message; at most [`MESSAGE_BYTES_MAX`] of them.
pub fn encode<M: Serialize + Bounded>(message: &M) -> Result<Vec<u8>, CodecError> {
    if message.longest_text_bytes() > TEXT_BYTES_MAX {
        return Err(CodecError::TextTooLong);
    }
    let bytes = postcard::to_stdvec(message).map_err(|error| CodecError::Malformed(error.to_string()))?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(CodecError::TooLong(bytes.len()));
    }
    Ok(bytes)
}

/// The message in one packet.
pub fn decode<M: DeserializeOwned + Bounded>(packet: &[u8]) -> Result<M, CodecError> {
    if packet.len() > MESSAGE_BYTES_MAX {
        return Err(CodecError::TooLong(packet.len()));
    }
    let (message, rest) =
        postcard::take_from_bytes::<M>(packet).map_err(|error| CodecError::Malformed(error.to_string()))?;
    if !rest.is_empty() {
        return Err(CodecError::TrailingBytes(rest.len()));
    }
    if message.longest_text_bytes() > TEXT_BYTES_MAX {
        return Err(CodecError::TextTooLong);
    }
    Ok(message)
}

impl Bounded for crate::ClientMessage {
    fn longest_text_bytes(&self) -> usize {
        match self {
            Self::Hello { shim_version: text, .. }
            | Self::Device { name: text, .. }
            | Self::Unhandled { name: text, .. }
            | Self::RegisterRun { name: text, .. } => text.len(),
            _ => 0,
        }
    }
}

impl Bounded for crate::DaemonMessage {
    fn longest_text_bytes(&self) -> usize {
        match self {
            Self::Welcome { tenant_name: text, .. }
            | Self::Rejected { text, .. }
            | Self::WaitNotice { holder_name: text, .. }
            | Self::RunRegistered { tenant_name: text, .. } => text.len(),
            _ => 0,
        }
    }
}

impl Bounded for crate::admin::AdminRequest {
    fn longest_text_bytes(&self) -> usize {
        0
    }
}
