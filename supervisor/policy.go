package supervisor

import (
	"snowmelt/actors/msg"
	"snowmelt/core/failure"
)

// row is one line of the policy: what a class of failure does, and why.
type row struct {
	directive msg.Directive
	why       string
}

// sourcePolicy says what each class of failure does to a table of a source
// (failures.md sections 1 and 3). A test checks that every class has a row.
var sourcePolicy = map[failure.Class]row{
	failure.Bug:            {msg.Restart, "a bug: restarted with backoff within its budget, then the task fails"},
	failure.Transient:      {msg.Retry, "heals by itself"},
	failure.Ambiguous:      {msg.Retry, "a GET may be repeated"},
	failure.RateLimited:    {msg.Retry, "the instance is paused, nothing is lost"},
	failure.Unavailable:    {msg.Retry, "the breaker is open"},
	failure.Aborted:        {msg.Retry, "the transaction left nothing; the cursor stands"},
	failure.OutcomeUnknown: {msg.Retry, "the table is claimed anew, which decides the transaction, and the cursor is read"},
	failure.TooLarge:       {msg.FailChild, "a single row is too large or too slow"},
	failure.Permission:     {msg.FailChild, "the table needs a role, an ACL or a domain"},
	failure.NotFound:       {msg.FailChild, "the table does not exist"},
	failure.Conflict:       {msg.FailChild, "the instance refuses"},
	failure.RecordError:    {msg.FailChild, "the instance refuses the query"},
	failure.Permanent:      {msg.FailChild, "the instance refuses"},
	failure.Breach:         {msg.FailChild, "answers contradict the query"},
	failure.BadRow:         {msg.FailChild, "a row has no position and bad.row.behavior is fail"},
	failure.Oversized:      {msg.FailChild, "a record is larger than its topic takes"},
	failure.Misconfigured:  {msg.FailChild, "a setting contradicts what is there"},
	failure.TopicRefused:   {msg.FailChild, "the topic would lose or reorder rows"},
	failure.Fenced:         {msg.FailChild, "another process owns the table"},
	failure.RecordStops:    {msg.FailTask, "a record that cannot be written, under behavior.on.api.errors=fail"},
	failure.Auth:           {msg.FailTask, "every table uses the same credential, and repeating it locks the account"},
	failure.BrokerRefused:  {msg.FailTask, "every table uses the same brokers and the same principal"},
}

// decideSource looks a failure of a table up in the policy.
func decideSource(err error) msg.Directive { return sourcePolicy[failure.ClassOf(err)].directive }

// sinkPolicy says what each class of failure does to a lane of a sink. A lane
// tells its sink only what it cannot settle record by record.
var sinkPolicy = map[failure.Class]row{
	failure.Bug:            {msg.Restart, "a bug: restarted with backoff within its budget, then the task fails"},
	failure.Transient:      {msg.Retry, "heals by itself; the record is never dropped"},
	failure.Ambiguous:      {msg.Retry, "an update or delete may be sent again"},
	failure.RateLimited:    {msg.Retry, "the instance is paused, nothing is lost"},
	failure.Unavailable:    {msg.Retry, "the breaker is open"},
	failure.TooLarge:       {msg.Retry, "the instance's quota ran out"},
	failure.Aborted:        {msg.Retry, "nothing was written to Kafka"},
	failure.OutcomeUnknown: {msg.Retry, "the commit is made again"},
	failure.Fenced:         {msg.Retry, "the group gave the partition to another member, and tells this one"},
	failure.Permission:     {msg.FailTask, "concerns the whole table, not one record"},
	failure.NotFound:       {msg.FailTask, "the table does not exist"},
	failure.Conflict:       {msg.FailTask, "nobody settled it record by record"},
	failure.RecordError:    {msg.FailTask, "nobody settled it record by record"},
	failure.Permanent:      {msg.FailTask, "the instance refuses the table"},
	failure.Breach:         {msg.FailTask, "the dictionary contradicts its query"},
	failure.BadRow:         {msg.FailTask, "the dictionary shows rows without ids"},
	failure.Oversized:      {msg.FailTask, "a report is larger than its topic takes"},
	failure.Misconfigured:  {msg.FailTask, "a setting contradicts what is there"},
	failure.TopicRefused:   {msg.FailTask, "an input, report or dead letter topic is missing, or its offset is gone"},
	failure.RecordStops:    {msg.FailTask, "a record that cannot be written, under behavior.on.api.errors=fail"},
	failure.Auth:           {msg.FailTask, "repeating a refused credential locks the account"},
	failure.BrokerRefused:  {msg.FailTask, "the principal lacks a right"},
}

// decideSink looks a failure of a lane or reporter up in the policy.
func decideSink(err error) msg.Directive { return sinkPolicy[failure.ClassOf(err)].directive }
