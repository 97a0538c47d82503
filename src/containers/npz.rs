//! stub
use super::Contents;
pub fn write(_c: &Contents) -> Vec<u8> {
    unimplemented!()
}
pub fn read(_b: &[u8]) -> Result<Contents, String> {
    unimplemented!()
}
