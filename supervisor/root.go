package supervisor

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/asynkron/protoactor-go/actor"

	"snowmelt/actors/kit"
	"snowmelt/actors/limiter"
	"snowmelt/actors/msg"
)

// instance is a host with its limiter.
type instance struct {
	host string
	cfg  limiter.Config
}

// pipeline is one source or sink to spawn; its limiter exists when props is called.
type pipeline struct {
	// kind is source or sink, the first part of the actor's name.
	kind, name, host string
	props            func(limiter msg.Ref[msg.Limiter]) *actor.Props
	// drain is the message that ends it in order.
	drain any
}

// rootConfig is what the engine actor spawns, and whom it tells.
type rootConfig struct {
	instances []instance
	pipelines []pipeline
	observer  msg.Observer
	log       *slog.Logger
	opts      []actor.PropsOption
	// ended is told each pipeline that ended, with its failure or nil.
	ended func(pipeline string, err error)
	// stopped is told when the engine actor has stopped.
	stopped func()
}

type root struct {
	cfg      rootConfig
	running  map[string]*actor.PID
	failed   map[string]error
	stopping bool
}

// Receive takes one message. It never blocks.
func (r *root) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		r.start(ctx)
	case *actor.Stopped:
		r.cfg.stopped()
	case *msg.StopEngine:
		if r.stopping {
			return
		}
		r.stopping = true
		for _, p := range r.cfg.pipelines {
			if pid := r.running[p.name]; pid != nil {
				ctx.Send(pid, p.drain)
			}
		}
		r.stopIfDone(ctx)
	case *actor.Terminated:
		for name, pid := range r.running {
			if pid.Equal(m.Who) {
				delete(r.running, name)
				if r.failed[name] == nil {
					r.cfg.observer.PipelineState(name, msg.Stopped, nil)
				}
				r.cfg.ended(name, r.failed[name])
			}
		}
		r.stopIfDone(ctx)
	}
}

func (r *root) start(ctx actor.Context) {
	limiters := map[string]msg.Ref[msg.Limiter]{}
	for _, i := range r.cfg.instances {
		pid, err := ctx.SpawnNamed(limiter.Props(i.cfg, r.cfg.opts...), "instance/"+i.host)
		if err != nil {
			panic(fmt.Errorf("spawning the limiter of %s: %w", i.host, err))
		}
		limiters[i.host] = kit.NewRef[msg.Limiter](ctx.ActorSystem(), pid)
	}
	for _, p := range r.cfg.pipelines {
		pid, err := ctx.SpawnNamed(p.props(limiters[p.host]), p.kind+"/"+p.name)
		if err != nil {
			panic(fmt.Errorf("spawning %s %s: %w", p.kind, p.name, err))
		}
		r.running[p.name] = pid
	}
}

// stopIfDone stops the engine once it was asked to and no pipeline is left.
func (r *root) stopIfDone(ctx actor.Context) {
	if r.stopping && len(r.running) == 0 {
		ctx.Stop(ctx.Self())
	}
}

// HandleFailure is the engine's strategy: a failed pipeline stops with its
// subtree, its neighbours go on; a limiter holds nothing and is restarted.
func (r *root) HandleFailure(_ *actor.ActorSystem, sup actor.Supervisor, child *actor.PID, _ *actor.RestartStatistics, reason, _ any) {
	err, ok := reason.(error)
	if !ok {
		err = fmt.Errorf("panic: %v", reason)
	}
	for name, pid := range r.running {
		if pid.Equal(child) {
			if r.failed[name] == nil {
				r.failed[name] = err
				r.cfg.observer.PipelineState(name, msg.Failed, err)
			}
			sup.StopChildren(child)
			return
		}
	}
	r.cfg.observer.Restarted("limiter")
	r.cfg.log.Error("a limiter is restarted", "actor", child.GetId(), "error", errors.Unwrap(fmt.Errorf("%w", err)))
	sup.RestartChildren(child)
}
