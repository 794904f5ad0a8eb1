package kafka

import "testing"

func TestStartStop(t *testing.T) {
	if why := Missing(); why != "" {
		t.Skip(why)
	}
	for _, brokers := range []int{1} { // three are started in itest/blackbox
		c, err := Start(t.Context(), Options{Dir: t.ArtifactDir(), Brokers: brokers})
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Bootstrap()) != brokers {
			t.Error(c.Bootstrap())
		}
		c.Close()
		for _, n := range c.Nodes {
			if !n.Ended() || n.cmd.ProcessState.ExitCode() != 143 {
				t.Errorf("broker %d: %v", n.ID, n.cmd.ProcessState)
			}
		}
	}
}
