package supervisor

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/lane"
	"snowmelt/actors/msg"
	"snowmelt/actors/reporter"
	"snowmelt/actors/sink"
	"snowmelt/config"
	"snowmelt/core/failure"
	"snowmelt/core/kafka"
	corelane "snowmelt/core/lane"
)

// fieldsEvery is how long a table's dictionary is believed.
const fieldsEvery = 10 * time.Minute

// addSink prepares one sink pipeline: its client, its cluster, its lanes' settings.
func (e *Engine) addSink(s config.Sink) error {
	client, err := e.client(s.Instance)
	if err != nil {
		return err
	}
	cluster, err := e.cluster(s.Kafka)
	if err != nil {
		return err
	}
	e.board.addSink(s.Name)
	cfg := sink.Config{
		Pipeline: s.Name, FieldsEvery: fieldsEvery, MaxPending: s.MaxPending, CommitInterval: s.CommitInterval,
		Decide: decideSink, Backoff: s.Instance.Retry, Budget: restarts(), Observer: e.board,
		Group: &e.group, Log: e.log, Jitter: e.opts.jitter,
		Join: func(self msg.Ref[msg.Sink], gone <-chan struct{}) (*kafka.Consumer, error) {
			return join(s, cluster, self, gone)
		},
		Reporter: func(self msg.Ref[msg.Sink]) *actor.Props {
			return reporter.Props(reporter.Config{
				Pipeline: s.Name, SuccessTopic: s.SuccessTopic, ErrorTopic: s.ErrorTopic, DeadLetterTopic: s.DeadLetterTopic,
				ContextHeaders: s.ContextHeaders, Body: s.ReportBody, Produce: cluster.Produce, Backoff: s.Instance.Retry, Parent: self,
				Observer: e.board, Group: &e.group, Log: e.log, Jitter: e.opts.jitter, Kept: &reporter.Kept{},
			}, e.rootCfg.opts...)
		},
	}
	lanes := lane.Config{
		Pipeline: s.Name, Mapping: s.Mapping, Retry: s.Instance.Retry, PoolMax: s.MaxInFlight, Instance: client,
		Observer: e.board, Group: &e.group, Log: e.log, Jitter: e.opts.jitter, Planted: e.opts.planted,
		Policy: lane.Policy{
			CreateAmbiguous: s.CreateAmbiguous, Statuses: s.Statuses, NotFound: s.NotFound, OnErrors: s.OnErrors,
			Redelivered: s.Redelivered, Settle: s.Settle, HasPath: s.ErrorTopic != "" || s.DeadLetterTopic != "",
		},
	}
	cfg.Lane = func(part kafka.Partition, core *corelane.Lane, self msg.Ref[msg.Sink], reports msg.Ref[msg.Reporter]) (*actor.Props, sink.LaneState) {
		c := lanes
		c.Part, c.Kept, c.Parent, c.Reporter = part, lane.NewKept(core), self, reports
		return lane.Props(c, e.rootCfg.opts...), c.Kept
	}
	if s.Mapping.Unknown != "passthrough" {
		cfg.Fields = func(ctx context.Context) (map[string]bool, error) { return client.TableFields(ctx, s.Mapping.Table) }
	}
	e.rootCfg.pipelines = append(e.rootCfg.pipelines, pipeline{
		kind: "sink", name: s.Name, host: client.Host(), drain: &msg.DrainSink{},
		props: func(l msg.Ref[msg.Limiter]) *actor.Props {
			lanes.Limiter, cfg.Limiter = l, l
			return sink.Props(cfg, e.rootCfg.opts...)
		},
	})
	return nil
}

// sinkTopics makes sure that a sink's input and report topics are there: none of
// them is made by the engine. A missing input is fatal (exit code 4).
func sinkTopics(ctx context.Context, cluster *kafka.Cluster, s config.Sink) error {
	for _, topic := range s.Topics {
		if err := cluster.FindTopic(ctx, topic, "Read"); err != nil {
			if e, ok := errors.AsType[*failure.Error](err); ok && e.Class != failure.Transient {
				e.Input = true
				if e.Class == failure.TopicRefused {
					e.Hint = "create the input topic, or correct topics"
				}
			}
			return err
		}
	}
	for _, topic := range []string{s.SuccessTopic, s.ErrorTopic} {
		if topic == "" {
			continue
		}
		if err := cluster.FindTopic(ctx, topic, "Write"); err != nil {
			if e, ok := errors.AsType[*failure.Error](err); ok && e.Class == failure.TopicRefused {
				e.Hint = "create the report topic: the engine does not"
			}
			return err
		}
	}
	return nil
}

// joinTime bounds the checks before a sink joins its group.
const joinTime = time.Minute

// join makes sure that every topic is there, since none is made by a first
// record, and joins the consumer group.
func join(s config.Sink, cluster *kafka.Cluster, self msg.Ref[msg.Sink], gone <-chan struct{}) (*kafka.Consumer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	if err := sinkTopics(ctx, cluster, s); err != nil {
		return nil, err
	}
	if s.DeadLetterTopic == "" {
	} else if err := cluster.FindTopic(ctx, s.DeadLetterTopic, "Write"); failure.ClassOf(err) != failure.TopicRefused {
		if err != nil {
			return nil, err
		}
	} else {
		spec := kafka.TopicSpec{Name: s.DeadLetterTopic, Partitions: 1, Replication: s.DeadLetterReplication}
		if _, err := cluster.EnsureTopic(ctx, spec, true); err != nil {
			return nil, err
		}
	}
	c, err := kafka.NewConsumer(kafka.ConsumerConfig{
		Cluster: cluster, Group: s.Group, Topics: s.Topics, Reset: s.OffsetReset, ReadCommitted: s.ReadCommitted,
		InstanceID: s.InstanceID, SessionTimeout: s.SessionTimeout, RebalanceTimeout: s.RebalanceTimeout,
		Fetched: func(c map[kafka.Partition]kafka.Commit) { self.Tell(&msg.Fetched{Commits: c}) },
		Revoked: func(ctx context.Context, parts []kafka.Partition) {
			done := make(chan struct{})
			self.Tell(&msg.Revoked{Parts: parts, Done: done})
			select {
			case <-done:
			case <-gone:
			case <-ctx.Done(): // somebody else gets the partitions now, whatever their lanes still wait for
				self.Tell(&msg.Lost{Parts: parts})
			}
		},
		Lost: func(parts []kafka.Partition) { self.Tell(&msg.Lost{Parts: parts}) },
	})
	select {
	case <-gone: // nobody is left who would close it
		if c != nil {
			c.Close()
		}
	default:
	}
	return c, err
}
