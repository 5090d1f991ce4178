//! Single flight, one order at a time; `cache/tests/races.rs` tries them all.

use crate::error::ErrorKind;
use crate::flight::{Claim, Flights};

#[tokio::test]
async fn everyone_who_joins_gets_the_answer_and_the_slot_goes() {
    let flights = Flights::<u32, u32>::new();
    let Claim::Lead(lead) = flights.claim(7) else {
        panic!("nobody else is at it");
    };
    let Claim::Join(early) = flights.claim(7) else {
        panic!("the lead is at it");
    };
    let own = lead.waiter();
    let waiting = tokio::spawn(early.wait());
    tokio::task::yield_now().await;
    lead.land(Ok(9));
    assert_eq!(waiting.await.unwrap().unwrap(), 9);
    assert_eq!(own.wait().await.unwrap(), 9);
    assert_eq!(flights.len(), 0);
    assert!(matches!(flights.claim(7), Claim::Lead(_)));
}

#[tokio::test]
async fn a_lead_that_is_dropped_lands_an_error() {
    let flights = Flights::<u32, u32>::new();
    let Claim::Lead(lead) = flights.claim(7) else {
        panic!("nobody else is at it");
    };
    let waiter = lead.waiter();
    drop(lead);
    assert_eq!(waiter.wait().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(flights.len(), 0);
}
