//! The only test of its process: the first look for a default device is what it is about.

use bessemer::Device;
use bessemer_hal::{Family, noop};

#[test]
fn a_scope_outlasts_another_threads_first_look_for_a_default() {
    let device = Device::on(noop::device(Family::Apple7));
    device.scope(|| {
        std::thread::spawn(Device::current).join().unwrap().unwrap();
        assert_eq!(Device::current().unwrap().name(), device.name());
    });
}
