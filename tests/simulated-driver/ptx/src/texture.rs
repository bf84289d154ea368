//! Textures and surfaces as a kernel asks for them: what the caller of `Launch::run` is given to look up.
//!
//! An object is a number that only the caller can read, and so is what lies behind it. Coordinates come as they
//! are written in the instruction. Read next: `compile/texture.rs`, `execute/texture.rs`.

/// The dimensions of a texture or surface instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Geometry {
    /// `.1d`
    Line,
    /// `.2d`
    Plane,
    /// `.3d`
    Solid,
    /// `.a1d`: the layer comes first.
    Lines,
    /// `.a2d`: the layer comes first.
    Planes,
}

/// Coordinates as the instruction has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coordinates {
    /// Whole texels, or for surfaces bytes of a row and whole rows.
    Whole([i32; 3]),
    /// Texels, or parts of the extent, as the texture says.
    Real([f32; 3]),
}

/// One lane's read through a texture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fetch {
    /// The texture object.
    pub object: u64,
    /// What it is read as.
    pub geometry: Geometry,
    /// Where.
    pub at: Coordinates,
    /// The layer, for arrays of lines or planes.
    pub layer: u32,
}

/// What a surface access outside of the surface does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// The kernel fails.
    Trap,
    /// The nearest place is accessed.
    Clamp,
    /// Reads are zero, writes are dropped.
    Zero,
}

/// One lane's access to a surface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SurfaceAccess {
    /// The surface object.
    pub object: u64,
    /// What it is accessed as.
    pub geometry: Geometry,
    /// Byte of the row, row, slice.
    pub at: [i32; 3],
    /// The layer, for arrays of lines or planes.
    pub layer: u32,
    /// What happens outside.
    pub outside: Outside,
}
