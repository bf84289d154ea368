//! Runs the kernels of these tests through a driver instead of the interpreter, when `CONFORMANCE_LIBRARY` names the
//! folder of a `libcuda.so.1`: then a card judges the values that the tests expect.
//!
//! Addresses in the parameters are moved to where the device has the memory. Only what runs a kernel to its end goes
//! this way; tests that look into the interpreter say that they were not run.

use super::{Flat, Parameters};
use std::ffi::{CString, c_int, c_uint, c_void};
use std::sync::{Mutex, OnceLock};

type Code = c_int;

/// The few functions that a run needs, by their names in cuda.h.
#[derive(Debug)]
pub struct Card {
    library: libloading::Library,
    context: usize,
    /// Address and bytes of the memory that the last run had.
    memory: Mutex<(u64, usize)>,
}

macro_rules! driver {
    ($card:expr, $name:literal, ($($kind:ty),*), ($($argument:expr),*)) => {{
        // SAFETY: the types are those of cuda.h for this name; pointers are of live values of the caller.
        let code = unsafe {
            let function: libloading::Symbol<unsafe extern "C" fn($($kind),*) -> Code> =
                $card.library.get($name.as_bytes()).unwrap_or_else(|error| panic!("{}: {error}", $name));
            function($($argument),*)
        };
        code
    }};
}

macro_rules! ok {
    ($card:expr, $name:literal, $kinds:tt, $arguments:tt) => {
        assert_eq!(driver!($card, $name, $kinds, $arguments), 0, $name)
    };
}

/// The card to run on, if the environment names one.
pub fn card() -> Option<&'static Card> {
    static CARD: OnceLock<Option<Card>> = OnceLock::new();
    CARD.get_or_init(|| std::env::var_os("CONFORMANCE_LIBRARY").map(|folder| Card::open(folder.as_ref())))
        .as_ref()
}

impl Card {
    fn open(folder: &std::path::Path) -> Card {
        let path = folder.join("libcuda.so.1");
        // SAFETY: a driver's initialisers do nothing to this program.
        let library = unsafe { libloading::Library::new(&path) };
        let library = library.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut card = Card { library, context: 0, memory: Mutex::new((0, 0)) };
        let mut context: *mut c_void = std::ptr::null_mut();
        ok!(card, "cuInit", (c_uint), (0));
        ok!(card, "cuDevicePrimaryCtxRetain", (*mut *mut c_void, c_int), (&raw mut context, 0));
        card.context = context as usize;
        card
    }

    /// Makes the context that of the calling thread.
    fn enter(&self) {
        let context = std::ptr::with_exposed_provenance_mut::<c_void>(self.context);
        ok!(self, "cuCtxSetCurrent", (*mut c_void), (context));
    }

    /// Whether the device is new enough for the target of a text.
    pub fn can_run(&self, source: &str) -> bool {
        let target = source.split(".target sm_").nth(1).and_then(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<c_int>().ok()
        });
        // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
        let [major, minor] = [75, 76].map(|attribute| {
            let mut value = 0;
            ok!(self, "cuDeviceGetAttribute", (*mut c_int, c_int, c_int), (&raw mut value, attribute, 0));
            value
        });
        target.is_none_or(|target| target <= 10 * major + minor)
    }

    /// Loads the text, runs its kernel `k` on the bytes of `memory`, and brings them back.
    pub fn run(&self, source: &str, grid: u32, block: u32, parameters: &Parameters, memory: &mut Flat) {
        // One run at a time: they share the memory, which is as long as the test's so that its end is an end.
        let mut place = self.memory.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.enter();
        let bytes = memory.bytes.len();
        if bytes > 0 && place.1 != bytes {
            if place.0 != 0 {
                ok!(self, "cuMemFree_v2", (u64), (place.0));
            }
            let mut fresh = 0_u64;
            ok!(self, "cuMemAlloc_v2", (*mut u64, usize), (&raw mut fresh, bytes));
            *place = (fresh, bytes);
        }
        let base = place.0;
        let parameters = parameters.moved_to(base);
        let text = CString::new(source).expect("no zero in PTX");
        let (mut module, mut kernel): (*mut c_void, *mut c_void) =
            (std::ptr::null_mut(), std::ptr::null_mut());
        ok!(
            self,
            "cuModuleLoadData",
            (*mut *mut c_void, *const c_void),
            (&raw mut module, text.as_ptr().cast())
        );
        ok!(
            self,
            "cuModuleGetFunction",
            (*mut *mut c_void, *mut c_void, *const i8),
            (&raw mut kernel, module, c"k".as_ptr())
        );
        let none = std::ptr::null_mut::<c_void>();
        if bytes > 0 {
            let from: *const c_void = memory.bytes.as_ptr().cast();
            ok!(self, "cuMemcpyHtoD_v2", (u64, *const c_void, usize), (base, from, bytes));
        }
        // CU_LAUNCH_PARAM_BUFFER_POINTER, _SIZE, _END.
        let mut size = parameters.len();
        let mut packed = [
            std::ptr::without_provenance_mut::<c_void>(1),
            parameters.as_ptr().cast_mut().cast(),
            std::ptr::without_provenance_mut(2),
            (&raw mut size).cast(),
            none,
        ];
        ok!(
            self,
            "cuLaunchKernel",
            (
                *mut c_void,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                *mut c_void,
                *mut *mut c_void,
                *mut *mut c_void
            ),
            (kernel, grid, 1, 1, block, 1, 1, 0, none, std::ptr::null_mut(), packed.as_mut_ptr())
        );
        ok!(self, "cuCtxSynchronize", (), ());
        if bytes > 0 {
            let to: *mut c_void = memory.bytes.as_mut_ptr().cast();
            ok!(self, "cuMemcpyDtoH_v2", (*mut c_void, u64, usize), (to, base, bytes));
        }
        ok!(self, "cuModuleUnload", (*mut c_void), (module));
    }
}
