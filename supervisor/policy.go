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
	failure.Auth:           {msg.FailTask, "every table uses the same credential, and repeating it locks the account"},
	failure.BrokerRefused:  {msg.FailTask, "every table uses the same brokers and the same principal"},
}

// decideSource looks a failure of a table up in the policy.
func decideSource(err error) msg.Directive { return sourcePolicy[failure.ClassOf(err)].directive }
