//! Finding a function of a later library by reading ELF tables, without asking `dlsym`.
//!
//! Needed because we export `dlsym` and `dlvsym` ourselves: asking for the real ones by name would
//! find ours, and a version tag (`GLIBC_2.34`) exists only on some systems. Walks the objects that
//! the dynamic linker lists after the one that holds this code. Allocates nothing and takes no
//! lock of ours, since it may run before anything else of this process.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::size_of;

#[repr(C)]
struct DynamicEntry {
    tag: i64,
    value: usize,
}

#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

struct Search<'a> {
    name: &'a CStr,
    own_address: usize,
    passed_own: bool,
    found: *mut c_void,
}

/// The address of the first function `name` in the objects after this one, or null.
pub(super) fn function_after_this_object(name: &CStr) -> *mut c_void {
    let own_address = function_after_this_object as *const () as usize;
    let mut search = Search { name, own_address, passed_own: false, found: core::ptr::null_mut() };
    // SAFETY: the callback has the declared type and gets `search`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

/// Whether `address` lies in a loaded segment of the object that also holds `landmark`.
pub(crate) fn same_object(landmark: usize, address: usize) -> bool {
    struct Question {
        landmark: usize,
        address: usize,
        answer: bool,
    }
    unsafe extern "C" fn ask(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
        // SAFETY: `data` is the question handed to dl_iterate_phdr below; `info` is valid for
        // the duration of this callback, as dl_iterate_phdr(3) promises.
        let (info, question) = unsafe { (&*info, &mut *data.cast::<Question>()) };
        if !contains(info, question.landmark) {
            return 0;
        }
        question.answer = contains(info, question.address);
        1
    }
    let mut question = Question { landmark, address, answer: false };
    // SAFETY: as in `function_after_this_object`.
    unsafe { libc::dl_iterate_phdr(Some(ask), (&raw mut question).cast()) };
    question.answer
}

unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: `data` is the `Search` handed to dl_iterate_phdr; `info` is valid in this callback.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    if !search.passed_own {
        search.passed_own = contains(info, search.own_address);
        return 0;
    }
    // SAFETY: the object is loaded and stays so during the callback (the linker's lock is held).
    search.found = unsafe { find(info, search.name) };
    c_int::from(!search.found.is_null())
}

fn headers(info: &libc::dl_phdr_info) -> &[libc::Elf64_Phdr] {
    // SAFETY: the linker describes a loaded object: `dlpi_phnum` headers at `dlpi_phdr`.
    unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum as usize) }
}

fn contains(info: &libc::dl_phdr_info, address: usize) -> bool {
    headers(info).iter().filter(|header| header.p_type == libc::PT_LOAD).any(|header| {
        let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
        address.wrapping_sub(start) < header.p_memsz as usize
    })
}

/// # Safety
/// `info` describes an object that is loaded now.
unsafe fn find(info: &libc::dl_phdr_info, name: &CStr) -> *mut c_void {
    let base = info.dlpi_addr as usize;
    let Some(dynamic) = headers(info).iter().find(|header| header.p_type == libc::PT_DYNAMIC) else {
        return core::ptr::null_mut();
    };
    let mut entry = base.wrapping_add(dynamic.p_vaddr as usize) as *const DynamicEntry;
    let (mut symbols, mut strings, mut gnu_hash, mut hash) = (0, 0, 0, 0);
    // SAFETY: the dynamic section of a loaded object ends with a DT_NULL entry.
    unsafe {
        while (*entry).tag != 0 {
            // glibc has relocated these addresses in place; musl and the vDSO have not.
            let value = (*entry).value;
            let address = if value < base { base.wrapping_add(value) } else { value };
            match (*entry).tag {
                DT_SYMTAB => symbols = address,
                DT_STRTAB => strings = address,
                DT_GNU_HASH => gnu_hash = address,
                DT_HASH => hash = address,
                _ => {}
            }
            entry = entry.add(1);
        }
    }
    if symbols == 0 || strings == 0 {
        return core::ptr::null_mut();
    }
    let table = Table { base, symbols: symbols as *const Symbol, strings: strings as *const c_char };
    // SAFETY: the tables belong to the loaded object and have the layout of the ELF and GNU
    // hash specifications.
    unsafe {
        if gnu_hash != 0 {
            table.by_gnu_hash(gnu_hash as *const u32, name)
        } else if hash != 0 {
            let symbol_count = *(hash as *const u32).add(1);
            (1..symbol_count as usize)
                .find_map(|index| table.function(index, name))
                .unwrap_or(core::ptr::null_mut())
        } else {
            core::ptr::null_mut()
        }
    }
}

struct Table {
    base: usize,
    symbols: *const Symbol,
    strings: *const c_char,
}

impl Table {
    /// # Safety
    /// `index` is an index of the object's symbol table.
    unsafe fn function(&self, index: usize, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the caller's index is in the table; names are NUL-terminated in the string table.
        let (symbol, symbol_name) = unsafe {
            let symbol = &*self.symbols.add(index);
            (symbol, CStr::from_ptr(self.strings.add(symbol.name as usize)))
        };
        let kind = symbol.info & 0xf;
        let is_plain_function = kind == STT_FUNC && symbol.section != 0;
        debug_assert!(kind != STT_GNU_IFUNC || symbol_name != name, "dlsym is no ifunc");
        (is_plain_function && symbol_name == name)
            .then(|| self.base.wrapping_add(symbol.value) as *mut c_void)
    }

    /// # Safety
    /// `table` is the object's DT_GNU_HASH.
    unsafe fn by_gnu_hash(&self, table: *const u32, name: &CStr) -> *mut c_void {
        // SAFETY: layout of the GNU hash table: four words, a bloom filter, buckets, chains; a
        // chain ends with an odd hash.
        unsafe {
            let (bucket_count, first, bloom_words) =
                (*table as usize, *table.add(1) as usize, *table.add(2) as usize);
            let buckets = table.add(4 + bloom_words * (size_of::<usize>() / size_of::<u32>()));
            let chains = buckets.add(bucket_count);
            let wanted = gnu_hash(name);
            let mut index = *buckets.add(wanted as usize % bucket_count.max(1)) as usize;
            if bucket_count == 0 || index < first {
                return core::ptr::null_mut();
            }
            loop {
                let hash = *chains.add(index - first);
                if hash | 1 == wanted | 1
                    && let Some(address) = self.function(index, name)
                {
                    return address;
                }
                if hash & 1 == 1 {
                    return core::ptr::null_mut();
                }
                index += 1;
            }
        }
    }
}

fn gnu_hash(name: &CStr) -> u32 {
    name.to_bytes().iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No version tag is used, so this is also how it works where the known tags do not exist.
    #[test]
    fn interposition_the_real_dlsym_is_found_without_a_version_tag() {
        let found = function_after_this_object(c"dlsym");
        assert!(!found.is_null());
        // SAFETY: the address is that of a function with dlsym's signature.
        let dlsym: extern "C" fn(*mut c_void, *const c_char) -> *mut c_void =
            unsafe { core::mem::transmute(found) };
        let getpid = dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr());
        assert_eq!(getpid as usize, libc::getpid as *const () as usize);
        assert!(dlsym(libc::RTLD_DEFAULT, c"no_such_function_anywhere".as_ptr()).is_null());
    }

    #[test]
    fn what_nobody_exports_is_not_found() {
        assert!(function_after_this_object(c"no_such_function_anywhere").is_null());
    }

    #[test]
    fn an_address_belongs_to_the_object_it_lies_in() {
        let here = gnu_hash as *const () as usize;
        assert!(same_object(here, what_nobody_exports_is_not_found as *const () as usize));
        let in_libc = function_after_this_object(c"dlsym") as usize;
        assert!(!same_object(here, in_libc));
        assert!(!same_object(1, here), "nothing lies at address 1");
    }
}
