package fakesnow

// Snapshot is the store at one moment: rows, numbers, settings and display values, not faults, ACLs,
// journal or clock. Rows are shared with the instance and never change, so it costs a map copy.
type Snapshot struct {
	ids      map[string]map[string]*row // by root table
	layouts  map[string]*layout
	counts   map[string]int
	counters map[string]int
	settings map[string]string
	displays map[string]string
	idSeq    uint64
}

func clone[V any](m map[string]V) map[string]V {
	out := make(map[string]V, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

// Snapshot keeps the store as it is now, to be brought back by Restore.
func (in *Instance) Snapshot() *Snapshot {
	in.mu.RLock()
	defer in.mu.RUnlock()
	s := &Snapshot{
		ids: map[string]map[string]*row{}, layouts: map[string]*layout{}, counts: map[string]int{}, counters: map[string]int{},
		settings: clone(in.settings), displays: clone(in.displays), idSeq: in.idSeq,
	}
	for name, t := range in.tables {
		if t.parent == nil {
			s.ids[name] = clone(t.ids)
		}
		s.layouts[name], s.counts[name], s.counters[name] = t.lay, t.count, t.counter
	}
	return s
}

// Restore brings the store back to a snapshot of this instance. Tables made since then stay, empty.
func (in *Instance) Restore(s *Snapshot) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for name, t := range in.tables {
		t.idx = [indexKinds]*tree{}
		if t.parent == nil {
			t.ids = clone(s.ids[name])
		}
		t.count = s.counts[name]
		if lay := s.layouts[name]; lay != nil {
			t.lay, t.counter = lay, s.counters[name]
		}
	}
	recollate := in.settings[SettingCollation] != s.settings[SettingCollation]
	in.settings, in.displays, in.idSeq = clone(s.settings), clone(s.displays), s.idSeq
	in.schemaGen++
	if recollate {
		in.recollate()
	}
}
