//! The only test of its process: it tests the first lookup of the default device.

use bessemer::Device;
use bessemer_hal::{Family, noop};

#[test]
fn a_scope_survives_another_threads_default_lookup() {
    let device = Device::on(noop::device(Family::Apple7));
    device.scope(|| {
        std::thread::spawn(Device::current).join().unwrap().unwrap();
        assert_eq!(Device::current().unwrap().name(), device.name());
    });
}
