"""An order, from the reservation to the customer's door; see docs/tutorials/order-saga.md."""
