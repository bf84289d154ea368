//! Texture and surface objects: CUDA driver API, "Texture Object Management", "Surface Object Management".
//!
//! Rules: `textures.rs`. Views in block-compressed formats are not simulated.

use std::sync::Arc;

use turnus_bindings::CUerror;
use turnus_bindings::types::*;

use super::{entry, needed, put};
use crate::context::current;
use crate::space::Result;
use crate::textures::{
    SURFACES, Surface, TEXTURES, Texture, check_resource, check_sampling, check_surface, check_view,
};

entry! {
    fn cuTexObjectCreate(
        p_tex_object: *mut CUtexObject,
        p_res_desc: *const CUDA_RESOURCE_DESC,
        p_tex_desc: *const CUDA_TEXTURE_DESC,
        p_res_view_desc: *const CUDA_RESOURCE_VIEW_DESC,
    ) {
        needed(p_tex_object)?;
        let resource = *p_res_desc.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let mut sampling = *p_tex_desc.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let view = p_res_view_desc.as_ref().copied();
        let context = current::get_sound()?;
        let found = check_resource(&resource, context.device)?;
        check_sampling(&mut sampling, &found)?;
        if let Some(view) = &view {
            check_view(view, &found)?;
        }
        let texture = Texture { resource, sampling, view, context: context.id() };
        put(p_tex_object, TEXTURES.add(Arc::new(texture)) as CUtexObject)
    }

    fn cuTexObjectDestroy(tex_object: CUtexObject) {
        current::get_sound()?;
        TEXTURES.remove(tex_object as *mut ()).map(drop).map_err(|_| CUerror::INVALID_VALUE)
    }

    fn cuTexObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, tex_object: CUtexObject) {
        put(p_res_desc, texture(tex_object)?.resource)
    }

    fn cuTexObjectGetTextureDesc(p_tex_desc: *mut CUDA_TEXTURE_DESC, tex_object: CUtexObject) {
        put(p_tex_desc, texture(tex_object)?.sampling)
    }

    fn cuTexObjectGetResourceViewDesc(p_res_view_desc: *mut CUDA_RESOURCE_VIEW_DESC, tex_object: CUtexObject) {
        put(p_res_view_desc, texture(tex_object)?.view.ok_or(CUerror::INVALID_VALUE)?)
    }

    fn cuSurfObjectCreate(p_surf_object: *mut CUsurfObject, p_res_desc: *const CUDA_RESOURCE_DESC) {
        needed(p_surf_object)?;
        let resource = *p_res_desc.as_ref().ok_or(CUerror::INVALID_VALUE)?;
        let context = current::get_sound()?;
        check_surface(&resource, context.device)?;
        let surface = Surface { resource, context: context.id() };
        put(p_surf_object, SURFACES.add(Arc::new(surface)) as CUsurfObject)
    }

    fn cuSurfObjectDestroy(surf_object: CUsurfObject) {
        current::get_sound()?;
        SURFACES.remove(surf_object as *mut ()).map(drop).map_err(|_| CUerror::INVALID_VALUE)
    }

    fn cuSurfObjectGetResourceDesc(p_res_desc: *mut CUDA_RESOURCE_DESC, surf_object: CUsurfObject) {
        current::get_sound()?;
        let surface = SURFACES.get(surf_object as *mut ()).map_err(|_| CUerror::INVALID_VALUE)?;
        put(p_res_desc, surface.resource)
    }
}

fn texture(object: CUtexObject) -> Result<Arc<Texture>> {
    current::get_sound()?;
    TEXTURES.get(object as *mut ()).map_err(|_| CUerror::INVALID_VALUE)
}
