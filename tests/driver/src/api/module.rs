//! Modules from PTX, and linking them.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUfunction, CUfunction_attribute, CUjit_option, CUjitInputType, CUlinkState, CUmodule, CUresult,
};
use genesis_emulator::Module;

use super::{WRONG, answer, give, handle, number};
use crate::answer::Answer;
use crate::code::{Code, Function, Link, REGISTERS, SHARED, SHARED_OPT_IN};
use crate::driver::lock;

/// Where an option's messages go.
unsafe fn log_of(
    count: c_uint,
    options: *const CUjit_option,
    values: *const *mut c_void,
) -> Option<(u64, usize)> {
    let find = |wanted: CUjit_option| {
        let place = (0..count as usize).find(|&i| *options.add(i) == wanted)?;
        Some(*values.add(place) as u64)
    };
    let buffer = find(CUjit_option::CU_JIT_ERROR_LOG_BUFFER)?;
    let bytes = find(CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)?;
    Some((buffer, bytes as usize))
}

/// Writes a message, ending in a nul.
unsafe fn say(log: Option<(u64, usize)>, message: &str) {
    if let Some((buffer, room)) = log.filter(|(_, room)| *room > 0) {
        let n = message.len().min(room - 1);
        let to = buffer as *mut u8;
        to.copy_from(message.as_ptr(), n);
        to.add(n).write(0);
    }
}

/// Reads PTX; messages go to a log.
unsafe fn parse(text: &str, log: Option<(u64, usize)>) -> Answer<Module> {
    Module::parse(text).map_err(|fault| {
        say(log, &format!("virtual GPU: {fault}"));
        CUresult::CUDA_ERROR_INVALID_PTX
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> CUresult {
    answer(|| {
        if image.is_null() {
            return Err(WRONG);
        }
        {
            let mut driver = lock();
            driver.device()?;
            driver.refuse_unsafe()?;
        }
        let text = CStr::from_ptr(image.cast::<c_char>()).to_string_lossy();
        let code = Code { module: parse(&text, log_of(count, options, values))? };
        let mut driver = lock();
        let new = driver.handle();
        driver.modules.insert(new, Arc::new(code));
        give(module, handle(new))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) -> CUresult {
    cuModuleLoadDataEx(module, image, 0, std::ptr::null_mut(), std::ptr::null_mut())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleUnload(module: CUmodule) -> CUresult {
    answer(|| {
        let removed = lock().modules.remove(&number(module));
        removed.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(
    function: *mut CUfunction,
    module: CUmodule,
    name: *const c_char,
) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let device = driver.device()?;
        let code = driver.modules.get(&number(module)).cloned();
        let code = code.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if name.is_null() || CStr::from_ptr(name).to_bytes() != code.name().as_bytes() {
            return Err(CUresult::CUDA_ERROR_NOT_FOUND);
        }
        let new = driver.handle();
        let found = Function { code, device, most_shared: SHARED, large_clusters: false };
        driver.functions.insert(new, found);
        give(function, handle(new))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncSetAttribute(
    function: CUfunction,
    attribute: CUfunction_attribute,
    value: c_int,
) -> CUresult {
    use CUfunction_attribute as A;
    answer(|| {
        let mut driver = lock();
        let function = driver.functions.get_mut(&number(function));
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        match (attribute, u32::try_from(value)) {
            (A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, Ok(bytes))
                if bytes <= SHARED_OPT_IN =>
            {
                function.most_shared = bytes;
            }
            (A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, Ok(allowed)) => {
                function.large_clusters = allowed != 0;
            }
            (A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, _) => {}
            _ => return Err(WRONG),
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuFuncGetAttribute(
    value: *mut c_int,
    attribute: CUfunction_attribute,
    function: CUfunction,
) -> CUresult {
    use CUfunction_attribute as A;
    answer(|| {
        let driver = lock();
        let function = driver.functions.get(&number(function));
        let function = function.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let found = match attribute {
            A::CU_FUNC_ATTRIBUTE_NUM_REGS => REGISTERS,
            A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => function.most_shared as c_int,
            A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK => 1024,
            A::CU_FUNC_ATTRIBUTE_PTX_VERSION | A::CU_FUNC_ATTRIBUTE_BINARY_VERSION => 90,
            _ => 0,
        };
        give(value, found)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkCreate_v2(
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    link: *mut CUlinkState,
) -> CUresult {
    answer(|| {
        let log = log_of(count, options, values);
        let mut driver = lock();
        driver.device()?;
        let new = driver.handle();
        driver.links.insert(new, Link { text: Vec::new(), log });
        give(link, handle(new))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkAddData_v2(
    link: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    bytes: usize,
    _name: *const c_char,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let link = driver.links.get_mut(&number(link));
        let link = link.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        if kind != CUjitInputType::CU_JIT_INPUT_PTX || data.is_null() {
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        let text = std::slice::from_raw_parts(data.cast::<u8>(), bytes);
        parse(&String::from_utf8_lossy(text), link.log)?;
        link.text.extend(text);
        Ok(())
    })
}

/// There is no machine code: the text itself is what a module is loaded from.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkComplete(
    link: CUlinkState,
    image: *mut *mut c_void,
    bytes: *mut usize,
) -> CUresult {
    answer(|| {
        let mut driver = lock();
        let link = driver.links.get_mut(&number(link));
        let link = link.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        give(image, link.text.as_mut_ptr().cast())?;
        give(bytes, link.text.len())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuLinkDestroy(link: CUlinkState) -> CUresult {
    answer(|| {
        let removed = lock().links.remove(&number(link));
        removed.map(drop).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    })
}
