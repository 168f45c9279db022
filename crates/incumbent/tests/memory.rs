//! The engine in memory under the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use incumbent::conformance::{Subject, check};
use incumbent::election::Builder;
use incumbent::engines::memory::Memory;
use incumbent::{Election, Engine, Name, Timing};

struct InMemory(Memory);

#[async_trait]
impl Subject for InMemory {
    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.0.clone())
    }

    fn election(&self, name: &Name) -> Builder {
        let timing = Timing::of(self.ttl()).build().expect("a good ttl");
        Election::with(Arc::new(self.0.clone()), name.as_str()).timing(timing)
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(400)
    }
}

#[tokio::test]
async fn memory_conforms() {
    check(&InMemory(Memory::new())).await;
}
