//! Programs on the software Metal device, against the reference interpreter.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "tests may stop here")]

#[path = "program/barrier.rs"]
mod barrier;
#[path = "program/fault.rs"]
mod fault;
#[path = "program/instruction.rs"]
mod instruction;
#[path = "program/memory.rs"]
mod memory;
#[path = "program/random.rs"]
mod random;
#[path = "program/refused.rs"]
mod refused;
#[path = "program/stage.rs"]
mod stage;
#[path = "program/text.rs"]
mod text;

use bessemer::Device;
use bessemer::program::{
    BufferMemory, DeviceMemory, ExecutionParams, Fault, Interpreter, LaunchConfig, Program,
    ProgramError, Register,
};
use bessemer_hal as hal;
use bessemer_hal::soft::{Mode, SoftOptions};

fn soft(mode: Mode) -> Device {
    let options = SoftOptions {
        mode,
        ..SoftOptions::from_env().unwrap()
    };
    Device::on(hal::soft::device(options).unwrap())
}

/// A launch: buffer `i` has the handle `i + 1`, which is also in register `i + 1`.
#[derive(Clone, Debug)]
struct ProgramCase {
    program: Program,
    config: LaunchConfig,
    buffers: Vec<Vec<u8>>,
    step_limit: u64,
}

impl ProgramCase {
    fn new(text: &str, config: LaunchConfig, buffers: &[Vec<u8>]) -> Self {
        Self {
            program: text.parse().unwrap_or_else(|e| panic!("{e}\n{text}")),
            config,
            buffers: buffers.to_vec(),
            step_limit: 1 << 20,
        }
    }

    fn params(&self) -> ExecutionParams {
        let handles = 1..=self.buffers.len() as u8;
        handles.fold(ExecutionParams::new(self.config), |params, i| {
            params.with_register(Register(i), u64::from(i))
        })
    }

    /// The buffers and all faults that the interpreter leaves.
    fn interpret(&self) -> (Vec<Vec<u8>>, Vec<Fault>) {
        let mut memory = BufferMemory::new();
        for (handle, bytes) in (1..).zip(&self.buffers) {
            memory.insert(handle, bytes.clone());
        }
        let interpreter = Interpreter::new(&self.program).unwrap();
        let interpreter = interpreter.with_step_limit(self.step_limit);
        let outcome = interpreter.run_to_end(&self.params(), &mut memory).unwrap();
        let handles = 1..=self.buffers.len() as u64;
        let buffers = handles.map(|h| memory.buffer(h).unwrap().to_vec());
        (buffers.collect(), outcome.faults)
    }

    /// The buffers that a device leaves, and its error.
    fn execute(&self, device: &Device) -> (Vec<Vec<u8>>, Result<(), ProgramError>) {
        let mut memory = DeviceMemory::new(device).unwrap();
        for (handle, bytes) in (1..).zip(&self.buffers) {
            assert_eq!(memory.insert_bytes(bytes), Ok(handle));
        }
        let compiled = self.program.compile(device).unwrap();
        let compiled = compiled.with_step_limit(self.step_limit);
        let outcome = compiled.run(&self.params(), &mut memory);
        let handles = 1..=self.buffers.len() as u64;
        let buffers = handles.map(|h| memory.to_vec(h).unwrap());
        (buffers.collect(), outcome)
    }

    /// Checks that a device leaves the bytes that the interpreter leaves, and one of its faults.
    fn check(&self, device: &Device) {
        let (expected, faults) = self.interpret();
        let (found, outcome) = self.execute(device);
        let context = || {
            let msl = self.program.compile(device).unwrap().msl(&self.params());
            format!("{}\n{}", self.program, msl.unwrap())
        };
        match outcome {
            Ok(()) => assert_eq!(faults, [], "{}", context()),
            Err(ProgramError::Fault(fault)) => {
                let kinds: Vec<_> = faults.iter().map(|f| &f.kind).collect();
                assert!(
                    kinds.contains(&&fault.kind),
                    "{fault} {faults:?} {}",
                    context()
                );
            }
            Err(other) => panic!("{other}\n{}", context()),
        }
        assert_eq!(expected, found, "{}", context());
    }
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}
