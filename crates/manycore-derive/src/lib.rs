//! The derive macro of `manycore::collections::Plain`: feature `derive` of `manycore`.

use proc_macro::TokenStream;
use quote::{ToTokens, format_ident, quote};
use syn::{Data, DataEnum, DeriveInput, Error, Fields, parse_macro_input, parse_quote};

/// Implements `Plain` for a struct whose fields are plain, or for an enum without fields.
///
/// The struct may have gaps between its fields: they are left out of what is copied. Each type
/// parameter has to be `Plain`, too. Unions and enums with fields do not compile.
#[proc_macro_derive(Plain)]
pub fn plain(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    implement(input).unwrap_or_else(Error::into_compile_error).into()
}

fn implement(mut input: DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let write = match &input.data {
        Data::Struct(data) => write_fields(&data.fields),
        Data::Enum(data) => {
            check_enum(&input, data)?;
            None
        }
        Data::Union(data) => {
            return Err(Error::new_spanned(data.union_token, "a union may have bytes of no value"));
        }
    };
    let parameters: Vec<_> = input.generics.type_params().map(|one| one.ident.clone()).collect();
    let bounds = input.generics.make_where_clause();
    for parameter in parameters {
        bounds.predicates.push(parse_quote!(#parameter: ::manycore::collections::Plain));
    }
    let (name, (generics, arguments, bounds)) = (&input.ident, input.generics.split_for_impl());
    Ok(quote! {
        // SAFETY: each field is plain, by the calls below, and nothing between them is written; or
        // there is a discriminant alone.
        #[automatically_derived]
        unsafe impl #generics ::manycore::collections::Plain for #name #arguments #bounds {
            #write
        }
    })
}

/// Writes each field where it lies. The pattern has no `..`: a field that another macro adds is an
/// error.
fn write_fields(fields: &Fields) -> Option<proc_macro2::TokenStream> {
    let members: Vec<_> = fields.members().collect();
    let names: Vec<_> = (0..members.len()).map(|number| format_ident!("field_{number}")).collect();
    let types = fields.iter().map(|field| &field.ty);
    Some(quote! {
        #[inline(always)]
        unsafe fn __write(value: &Self, to: *mut u8) {
            let Self { #(#members: #names),* } = *value;
            // SAFETY: each field's place in the struct; the caller has room for the whole.
            unsafe {
                #(<#types as ::manycore::collections::Plain>::__write(
                    &#names,
                    to.add(::core::mem::offset_of!(Self, #members)),
                );)*
            }
        }
    })
}

/// Whether the enum is a discriminant and nothing else.
fn check_enum(input: &DeriveInput, data: &DataEnum) -> Result<(), Error> {
    if let Some(variant) = data.variants.iter().find(|variant| !variant.fields.is_empty()) {
        return Err(Error::new_spanned(variant, "the fields of an enum may leave gaps"));
    }
    let is_aligned = |attribute: &&syn::Attribute| {
        attribute.path().is_ident("repr")
            && attribute.meta.to_token_stream().to_string().contains("align")
    };
    match input.attrs.iter().find(is_aligned) {
        Some(attribute) => Err(Error::new_spanned(attribute, "an alignment may leave gaps")),
        None => Ok(()),
    }
}
