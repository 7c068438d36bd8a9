//! iceoryx2 on both sides, for peers.py; peers_ask.c describes what `ask` writes.
//!     peers_iceoryx2 serve NAME poll|events CLIENTS
//!     peers_iceoryx2 ask NAME poll|events CLIENT BYTES SECONDS
//! poll: both sides poll, as in its benchmarks/request-response. events: each waits at a listener,
//! as in its examples/rust/event_based_communication.
use iceoryx2::prelude::*;
use iceoryx2::service::port_factory::{event, request_response};
use std::error::Error;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;
/// A request's header is the number of its client.
type Service = request_response::PortFactory<ipc::Service, [f32], u32, i64, ()>;

const WARM: usize = 50;
const SLICE: Duration = Duration::from_secs(1);

struct Place {
    node: Node<ipc::Service>,
    name: String,
    events: bool,
}

impl Place {
    fn service(&self) -> Outcome<Service> {
        let named = self.node.service_builder(&self.name.as_str().try_into()?);
        let typed = named
            .request_response::<[f32], i64>()
            .request_user_header::<u32>();
        Ok(typed.max_clients(64).max_nodes(65).open_or_create()?)
    }

    fn event(&self, of: u32) -> Outcome<event::PortFactory<ipc::Service>> {
        let named = self
            .node
            .service_builder(&format!("{}-{of}", self.name).as_str().try_into()?);
        Ok(named
            .event()
            .max_notifiers(64)
            .max_nodes(65)
            .open_or_create()?)
    }

    fn serve(&self, clients: u32) -> Outcome<()> {
        let service = self.service()?;
        let server = service.server_builder().create()?;
        let asked = self.event(u32::MAX)?.listener_builder().create()?;
        let mut told = Vec::new();
        for client in 0..clients {
            told.push(self.event(client)?.notifier_builder().create()?);
        }
        std::io::stdout().write_all(b"ready\n")?;
        std::io::stdout().flush()?;
        loop {
            if self.events {
                asked.timed_wait_all(|_| {}, SLICE)?;
            }
            while let Some(request) = server.receive()? {
                request.send_copy((request.payload()[0] < 1.0) as i64)?;
                if self.events {
                    told[*request.user_header() as usize].notify()?;
                }
            }
        }
    }

    fn ask(&self, client: u32, bytes: usize, seconds: f64) -> Outcome<()> {
        let service = self.service()?;
        let asker = service
            .client_builder()
            .initial_max_slice_len(bytes / 4)
            .create()?;
        let told = self.event(client)?.listener_builder().create()?;
        let asked = self.event(u32::MAX)?.notifier_builder().create()?;
        let mut value = 0.2;
        let mut question = || -> Outcome<i64> {
            let mut request = asker.loan_slice_uninit(bytes / 4)?;
            *request.user_header_mut() = client;
            value = 0.5 - value;
            let request = request.write_from_fn(|_| value);
            let pending = request.send()?;
            if self.events {
                asked.notify()?;
            }
            loop {
                if let Some(response) = pending.receive()? {
                    return Ok(*response);
                }
                if self.events {
                    told.timed_wait_all(|_| {}, SLICE)?;
                }
            }
        };
        for _ in 0..WARM {
            question()?;
        }
        let mut out = std::io::stdout();
        out.write_all(b"r")?;
        out.flush()?;
        while std::io::stdin().read(&mut [0])? == 1 {
            let mut samples = vec![0i64];
            let start = Instant::now();
            let (mut before, end) = (start, start + Duration::from_secs_f64(seconds));
            while before < end {
                question()?;
                let now = Instant::now();
                samples.push((now - before).as_nanos() as i64);
                before = now;
            }
            samples[0] = samples.len() as i64 - 1;
            let bytes: Vec<u8> = samples.iter().flat_map(|ns| ns.to_ne_bytes()).collect();
            out.write_all(&bytes)?;
            out.flush()?;
        }
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    set_log_level(LogLevel::Error);
    let place = Place {
        node: NodeBuilder::new().create()?,
        name: arguments[2].clone(),
        events: arguments[3] == "events",
    };
    let number = arguments[4].parse()?;
    match arguments[1].as_str() {
        "serve" => place.serve(number),
        _ => place.ask(number, arguments[5].parse()?, arguments[6].parse()?),
    }
}
