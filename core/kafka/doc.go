// Package kafka is the franz-go side of snowmelt: it reads client settings
// under the Java client's names, checks and creates topics, keeps the cursors
// of tables in the record format of Kafka Connect's offset topic, and publishes
// pages of records together with the cursor that covers them.
//
// Every call blocks, takes a context with a deadline and returns in bounded
// time; a worker calls it, never an actor's Receive. Every error is a
// *failure.Error whose class was decided here, once (Invariant 7).
//
// The way of one page under exactly_once:
//
//	Open     fence: InitProducerId for the table's transactional id, over the shared client
//	         read:  the cursor topic up to the high watermark that was taken after the fence
//	Publish  session: a transactional client from the Pool; a new one fences again and proves
//	         that nothing was published since the last page (see session.go)
//	         begin, produce records and cursor, flush, look at every promise, commit
//
// What is not obvious:
//
//   - A transactional client is never used again after a failure. kgo can revive
//     one (KIP-360, KIP-588), but a revived producer says nothing about ownership.
//   - A transaction whose commit was never sent can never become visible, so every
//     failure before the commit is an abort, even when the abort itself was lost.
//   - Topics are read with raw Fetch requests over the shared client. Batches that
//     compaction emptied and markers then still move the position, and no client
//     with its own goroutines is needed for a read.
package kafka
