package supervisor_test

import (
	"context"
	"fmt"
	"time"

	"snowmelt/config"
	"snowmelt/supervisor"
)

// An engine runs the pipelines of one configuration inside another program: here
// a source and a sink that find neither instance nor broker, keep trying, and are
// stopped in order.
func Example() {
	cfg, err := config.Load(config.Input{Flags: map[string]string{
		"snow.url": "http://127.0.0.1:1", "snow.auth.username": "integration", "snow.auth.password": "secret",
		"kafka.bootstrap.servers":                      "127.0.0.1:1",
		"sources.itsm.snow.tables":                     "incident",
		"sources.itsm.snow.table.incident.name":        "incident",
		"sources.itsm.snow.table.incident.topic":       "servicenow.incident",
		"sinks.updates.topics":                         "incident-updates",
		"sinks.updates.snow.sink.table":                "incident",
		"sinks.updates.snow.sink.reporter.error.topic": "incident-update-errors",
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	engine, err := supervisor.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := engine.Start(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	for _, p := range engine.Status().Pipelines {
		fmt.Println(p.Kind, p.Name)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	fmt.Println(engine.Stop(ctx))
	// Output:
	// source itsm
	// sink updates
	// <nil>
}
