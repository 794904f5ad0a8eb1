package kafka

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStartStop(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	c, err := Start(t.Context(), Options{Dir: t.ArtifactDir()})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, n := range c.Nodes {
		if !n.Ended() || n.cmd.ProcessState.ExitCode() != 143 { // of SIGTERM, in order
			t.Errorf("broker %d: %v", n.ID, n.cmd.ProcessState)
		}
	}
}
