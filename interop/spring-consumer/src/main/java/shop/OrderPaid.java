package shop;

/** What this service reads of an event; other fields are none of its business. */
public record OrderPaid(String eventId, String orderId, String userId, long points) {}
