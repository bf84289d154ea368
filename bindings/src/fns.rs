//! One type of function pointer for each function of the driver API, under the function's name.
//!
//! A hook is checked against the header by the compiler: `const _: fns::cuInit = my_hook;`.
//! Nothing here calls or loads anything.
#![allow(non_camel_case_types, reason = "a type has the name of its function")]
#![allow(missing_docs, reason = "NVIDIA's documentation describes each function by name")]

use crate::types::*;

macro_rules! pointer_types {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(pub type $name = unsafe extern "C" fn($($argument: $type),*) -> $result;)*
    };
}
crate::driver_api!(pointer_types);
