package fakesnow

import (
	"encoding/base64"
	"net/http"
	"strings"
	"time"
)

// user is who a request acts as.
type user struct {
	name, password string
	id             string // of the sys_user row
	hiddenKey      string // changes with the fields hidden from the user
}

type aclKey struct{ user, table, field string }

// token is an OAuth access token.
type token struct {
	user string
	ends time.Time
}

func (in *Instance) seedUsers() {
	in.addUser("admin", "")
	for name, pw := range in.opts.Users {
		in.addUser(name, pw)
	}
}

func (in *Instance) addUser(name, password string) {
	id := hashID("sys_user", name)
	if name == "admin" {
		id = "6816f79cc0a8016401c5a33be04be441" // as on every instance
	}
	in.users[name] = &user{name: name, password: password, id: id}
	if in.find(in.tables["sys_user"], id) == nil {
		in.insertKnown(in.tables["sys_user"], map[string]string{
			"sys_id": id, "user_name": name, "name": title(name), "active": "true", "time_zone": "",
			"sys_created_on": schemaTime, "sys_updated_on": schemaTime, "sys_created_by": "system", "sys_updated_by": "system",
		})
	}
}

// AddUser adds a user or changes a password, with the time zone of the session ("" = UTC).
func (in *Instance) AddUser(name, password, timeZone string) {
	in.mu.Lock()
	if in.opts.Users == nil {
		in.opts.Users = map[string]string{}
	}
	users := map[string]string{name: password}
	for k, v := range in.opts.Users {
		if k != name {
			users[k] = v
		}
	}
	in.opts.Users = users
	in.addUser(name, password)
	id := in.users[name].id
	in.mu.Unlock()
	in.Update("sys_user", id, map[string]string{"time_zone": timeZone})
}

// SetTimeZone sets sys_user.time_zone of a user, creating the row of an unknown one.
func (in *Instance) SetTimeZone(name, zone string) {
	in.mu.Lock()
	if in.users[name] == nil {
		in.addUser(name, "")
	}
	id := in.users[name].id
	in.mu.Unlock()
	in.Update("sys_user", id, map[string]string{"time_zone": zone})
}

// location is the user's time zone; the caller holds in.mu.
func (u *user) location(in *Instance) *time.Location {
	if r := in.find(in.tables["sys_user"], u.id); r != nil {
		if zone, err := time.LoadLocation(r.get("time_zone")); err == nil {
			return zone
		}
	}
	return time.UTC
}

// authenticate tells who sent a request; nil when nobody known did. Other ways of signing in (OAuth,
// certificates) are further cases here.
func (in *Instance) authenticate(r *http.Request) *user {
	kind, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	in.mu.RLock()
	defer in.mu.RUnlock()
	switch {
	case strings.EqualFold(kind, "Basic"):
		name, pw, ok := basicPair(rest)
		if !ok {
			return nil
		}
		return in.login(name, pw)
	case strings.EqualFold(kind, "Bearer"):
		if t, ok := in.tokens[strings.TrimSpace(rest)]; ok && in.Now().Before(t.ends) {
			return in.users[t.user]
		}
	case kind == "" && r.TLS != nil && len(r.TLS.VerifiedChains) > 0:
		return in.users[r.TLS.PeerCertificates[0].Subject.CommonName]
	}
	return nil
}

// login checks a password; the caller holds in.mu.
func (in *Instance) login(name, pw string) *user {
	if len(in.opts.Users) == 0 {
		return in.users["admin"]
	}
	if _, ok := in.opts.Users[name]; !ok {
		return nil
	}
	if u := in.users[name]; u != nil && u.password == pw {
		return u
	}
	return nil
}

func basicPair(encoded string) (name, pw string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return "", "", false
	}
	return strings.Cut(string(raw), ":")
}

// claimed is the user name that a request claims, before it is checked: faults aim at it and the
// journal shows it.
func (in *Instance) claimed(r *http.Request) string {
	kind, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case strings.EqualFold(kind, "Basic"):
		if name, _, ok := basicPair(rest); ok {
			return name
		}
	case strings.EqualFold(kind, "Bearer"):
		in.mu.RLock()
		defer in.mu.RUnlock()
		return in.tokens[strings.TrimSpace(rest)].user
	case r.TLS != nil && len(r.TLS.PeerCertificates) > 0:
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	return ""
}

// HideRows sets a row ACL: rows for which hidden returns true are taken out after the limit, and
// X-Total-Count still counts them. The map is a copy. Nil removes the ACL.
func (in *Instance) HideRows(table string, hidden func(sysID string, row map[string]string) bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if hidden == nil {
		delete(in.hiddenRow, table)
		return
	}
	in.hiddenRow[table] = hidden
}

// HideField sets a field ACL: the field is absent from answers to the user ("" = everyone), unusable in
// queries, and ignored in writes. On a parent table it also holds for its subclasses.
func (in *Instance) HideField(user, table, field string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hiddenCol[aclKey{user, table, field}] = true
	in.schemaGen++
	for name, u := range in.users {
		if user == "" || user == name {
			u.hiddenKey = itoa(int(in.schemaGen)) + name
		}
	}
}

// DenyTable sets a table ACL: every request of the user ("" = everyone) to the table gets 403.
func (in *Instance) DenyTable(user, table string) {
	in.mu.Lock()
	in.denied[aclKey{user, table, ""}] = true
	in.mu.Unlock()
}

// FreezeField makes a field read-only: writes to it are ignored silently with 200.
func (in *Instance) FreezeField(table, field string) {
	in.mu.Lock()
	in.frozen[aclKey{"", table, field}] = true
	in.mu.Unlock()
}

// ClearACLs removes every HideRows, HideField, DenyTable and FreezeField.
func (in *Instance) ClearACLs() {
	in.mu.Lock()
	defer in.mu.Unlock()
	clear(in.hiddenRow)
	clear(in.hiddenCol)
	clear(in.denied)
	clear(in.frozen)
	in.schemaGen++
}

func (in *Instance) isHidden(u *user, t *table, field string) bool {
	if len(in.hiddenCol) == 0 {
		return false
	}
	for ; t != nil; t = t.parent {
		if in.hiddenCol[aclKey{u.name, t.name, field}] || in.hiddenCol[aclKey{"", t.name, field}] {
			return true
		}
	}
	return false
}

func (in *Instance) isFrozen(t *table, field string) bool {
	for ; t != nil; t = t.parent {
		if in.frozen[aclKey{"", t.name, field}] {
			return true
		}
	}
	return false
}

func (in *Instance) isDenied(u *user, table string) bool {
	return in.denied[aclKey{u.name, table, ""}] || in.denied[aclKey{"", table, ""}]
}
