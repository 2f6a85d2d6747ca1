//! A web service that counts its requests, measures how long they take, and tells Prometheus.
//!
//! Every request of every connection updates the same few numbers, on all threads of the runtime.
//! `manycore-metrics` lets each thread count on cache lines of its own once they are contended; a
//! scrape adds them up.
//!
//!     cargo run --example axum_metrics

use axum::{
    Router,
    extract::{Path, Request, State},
    http::{StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use manycore_metrics::{Counter, Gauge, Histogram, MetricRegistry};
use std::{net::SocketAddr, sync::Arc, time::Instant};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};

const CLIENTS: u64 = 8;
const REQUESTS: u64 = 50;

/// The metrics of one route. They are looked up once, when the route is made: an update by a kept
/// handle needs neither the registry's lock nor the labels.
#[derive(Clone)]
struct RouteMetrics {
    ok: Arc<Counter>,
    failed: Arc<Counter>,
    seconds: Arc<Histogram>,
    open: Arc<Gauge>,
}

impl RouteMetrics {
    /// The route's pattern is the label, not the path that was asked for: each value of a label is
    /// one more series for ever.
    fn new(registry: &MetricRegistry, route: &str) -> Self {
        let answered = |status| {
            registry.counter("http_requests_total", &[("route", route), ("status", status)])
        };
        Self {
            ok: answered("ok"),
            failed: answered("failed"),
            seconds: registry.histogram("http_request_seconds", &[("route", route)]),
            open: registry.gauge("http_requests_open", &[]),
        }
    }
}

/// Runs around the handlers of a route.
async fn measured(State(metrics): State<RouteMetrics>, request: Request, next: Next) -> Response {
    metrics.open.add(1.0);
    let start = Instant::now();
    let response = next.run(request).await;
    metrics.seconds.record_duration(start.elapsed());
    metrics.open.sub(1.0);
    let answered = if response.status().is_success() { &metrics.ok } else { &metrics.failed };
    answered.inc();
    response
}

async fn square(Path(number): Path<u32>) -> Response {
    match number.checked_mul(number) {
        Some(square) => square.to_string().into_response(),
        None => (StatusCode::BAD_REQUEST, "too large").into_response(),
    }
}

/// What Prometheus asks for every few seconds.
async fn scrape(State(registry): State<MetricRegistry>) -> impl IntoResponse {
    ([(CONTENT_TYPE, MetricRegistry::CONTENT_TYPE)], registry.render())
}

fn service(registry: &MetricRegistry) -> Router {
    registry.describe("http_requests_total", "Requests answered, by route and outcome.");
    registry.describe("http_request_seconds", "Time from a request to its answer.");
    let metrics = RouteMetrics::new(registry, "/square/{number}");
    Router::new()
        .route("/square/{number}", get(square).layer(from_fn_with_state(metrics, measured)))
        .route("/metrics", get(scrape).with_state(registry.clone()))
}

/// A client that knows just enough of HTTP for this program.
async fn ask(server: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let registry = MetricRegistry::new();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, service(&registry)).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(server.into_future());

    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        clients.spawn(async move {
            for number in 0..REQUESTS {
                let answer = ask(address, &format!("/square/{number}")).await.expect("an answer");
                assert!(answer.ends_with(&(number * number).to_string()), "{answer}");
            }
            let refused = ask(address, "/square/100000").await.expect("an answer");
            assert!(refused.starts_with("HTTP/1.1 400"), "{refused}");
        });
    }
    while let Some(client) = clients.join_next().await {
        client?;
    }

    let report = ask(address, "/metrics").await?;
    println!("{report}");
    let (ok, failed) = (CLIENTS * REQUESTS, CLIENTS);
    let route = "route=\"/square/{number}\"";
    for line in [
        format!("http_requests_total{{{route},status=\"ok\"}} {ok}"),
        format!("http_requests_total{{{route},status=\"failed\"}} {failed}"),
        format!("http_request_seconds_count{{{route}}} {}", ok + failed),
        "http_requests_open 0".to_owned(),
    ] {
        assert!(report.lines().any(|found| found == line), "{line} is not reported");
    }
    let _ = stop.send(());
    server.await??;
    Ok(())
}
