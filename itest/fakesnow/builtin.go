package fakesnow

import (
	"sort"
)

const taskColumns = `number sys_class_name:sys_class_name active:boolean=true state:choice=1 priority:choice=4 impact:choice=3
urgency:choice=3 short_description description opened_at:glide_date_time opened_by:reference:sys_user
assigned_to:reference:sys_user assignment_group:reference:sys_user_group closed_at:glide_date_time
closed_by:reference:sys_user close_notes due_date:glide_date_time follow_up:glide_date_time escalation:integer=0
made_sla:boolean=true knowledge:boolean=false contact_type cmdb_ci:reference:cmdb_ci company:reference:core_company
location:reference:cmn_location parent:reference:task approval=not_requested approval_set:glide_date_time
approval_history:journal upon_approval=proceed upon_reject=cancel comments:journal_input work_notes:journal_input
comments_and_work_notes:journal_list watch_list:glide_list:sys_user work_notes_list:glide_list:sys_user
additional_assignee_list:glide_list:sys_user group_list:glide_list:sys_user_group correlation_id
correlation_display activity_due:due_date sla_due:due_date business_duration:glide_duration
calendar_duration:glide_duration time_worked:timer work_start:glide_date_time work_end:glide_date_time
expected_start:glide_date_time reassignment_count:integer=0 order:integer delivery_plan:reference:sc_cat_item_delivery_plan
delivery_task:reference:sc_cat_item_delivery_task business_service:reference:cmdb_ci_service user_input wf_activity
rejection_goto:reference:task sys_domain:domain_id=global sys_domain_path=/`

const incidentColumns = `incident_state:choice=1 caller_id:reference:sys_user category=inquiry subcategory severity:choice=3
close_code resolved_at:glide_date_time resolved_by:reference:sys_user reopen_count:integer=0 child_incidents:integer=0
parent_incident:reference:incident problem_id:reference:problem rfc:reference:change_request
caused_by:reference:change_request notify:choice=1 business_stc:integer calendar_stc:integer`

const cmdbColumns = `sys_class_name:sys_class_name name asset_tag serial_number manufacturer:reference:core_company
model_id:reference:cmdb_model model_number category subcategory short_description comments operational_status:choice=1
install_status:choice=1 install_date:glide_date_time ip_address mac_address dns_domain fqdn
location:reference:cmn_location department:reference:cmn_department company:reference:core_company
assigned_to:reference:sys_user owned_by:reference:sys_user managed_by:reference:sys_user
support_group:reference:sys_user_group assignment_group:reference:sys_user_group cost cost_cc cost_center
discovery_source first_discovered:glide_date_time last_discovered:glide_date_time monitor:boolean=false
can_print:boolean=false fault_count:integer=0 correlation_id attributes environment unverified:boolean=false
warranty_expiration purchase_date order_date delivery_date sys_domain:domain_id=global sys_domain_path=/`

// builtinTables are the tables that exist without a dictionary file: enough for ordinary clients,
// with the columns that the documented samples of the Table API show.
func builtinTables() []*blueprint {
	list := []struct{ name, super, prefix, cols string }{
		{"task", "", "TASK", taskColumns},
		{"incident", "task", "INC", incidentColumns},
		{"problem", "task", "PRB", "known_error:boolean=false first_reported_by_task:reference:task workaround"},
		{"change_request", "task", "CHG", `type=normal risk:choice=4 category=Other phase=requested phase_state=open
reason justification implementation_plan backout_plan test_plan start_date:glide_date_time end_date:glide_date_time
requested_by:reference:sys_user cab_required:boolean=false cab_date:glide_date_time cab_recommendation
conflict_status=Not_Run production_system:boolean=false scope:integer=3 review_status review_date:glide_date_time`},
		{"cmdb", "", "", "sys_class_name:sys_class_name"},
		{"cmdb_ci", "cmdb", "", cmdbColumns},
		{"cmdb_ci_service", "cmdb_ci", "BSN", "busines_criticality used_for"},
		{"cmdb_ci_hardware", "cmdb_ci", "", "hardware_status default_gateway"},
		{"cmdb_ci_computer", "cmdb_ci_hardware", "", `os os_version os_service_pack os_address_width:integer ram:integer
cpu_count:integer cpu_name cpu_speed cpu_type cpu_core_count:integer disk_space virtual:boolean=false`},
		{"cmdb_ci_server", "cmdb_ci_computer", "", "host_name classification dr_backup used_for firewall_status"},
		{"cmdb_ci_linux_server", "cmdb_ci_server", "", "kernel_release"},
		{"cmdb_ci_win_server", "cmdb_ci_server", "", ""},
		{"sys_user", "", "", `user_name name first_name last_name email active:boolean=true time_zone title phone
mobile_phone employee_number vip:boolean=false locked_out:boolean=false department:reference:cmn_department
manager:reference:sys_user company:reference:core_company location:reference:cmn_location preferred_language country
city street zip state roles source web_service_access_only:boolean=false sys_domain:domain_id=global sys_class_name:sys_class_name`},
		{"sys_user_group", "", "", "name description email active:boolean=true manager:reference:sys_user parent:reference:sys_user_group"},
		{"cmn_location", "", "", "name city country street"},
		{"cmn_department", "", "", "name"},
		{"core_company", "", "", "name"},
		{"cmdb_model", "", "", "name"},
		{"sys_db_object", "", "", "name label super_class:reference:sys_db_object is_extendable:boolean number_ref access"},
		{"sys_dictionary", "", "", `name element internal_type:reference:sys_glide_object column_label
max_length:integer reference:reference:sys_db_object mandatory:boolean read_only:boolean active:boolean primary:boolean
default_value choice dependent attributes display:boolean`},
		{"sys_properties", "", "", "name value description type"},
		{"sys_choice", "", "", "name element value label inactive:boolean=false sequence:integer language=en"},
		{"sys_audit_delete", "", "", "tablename documentkey display_value payload user"},
		{"sys_audit", "", "", "tablename fieldname oldvalue newvalue documentkey reason record_checkpoint internal_checkpoint user"},
		{"sys_journal_field", "", "", "name element element_id value"},
	}
	prints := make([]*blueprint, 0, len(list))
	for _, t := range list {
		prints = append(prints, &blueprint{name: t.name, super: t.super, prefix: t.prefix, cols: parseColumns(t.cols)})
	}
	return prints
}

// choiceLabels are display values of choices, by column name.
var choiceLabels = map[string]map[string]string{
	"priority": {"1": "1 - Critical", "2": "2 - High", "3": "3 - Moderate", "4": "4 - Low", "5": "5 - Planning"},
	"impact":   {"1": "1 - High", "2": "2 - Medium", "3": "3 - Low"},
	"urgency":  {"1": "1 - High", "2": "2 - Medium", "3": "3 - Low"},
	"severity": {"1": "1 - High", "2": "2 - Medium", "3": "3 - Low"},
	"state": {
		"1": "New", "2": "In Progress", "3": "On Hold", "4": "Awaiting User Info", "5": "Awaiting Evidence",
		"6": "Resolved", "7": "Closed", "8": "Canceled",
	},
	"incident_state": {
		"1": "New", "2": "In Progress", "3": "On Hold", "4": "Awaiting User Info", "5": "Awaiting Evidence",
		"6": "Resolved", "7": "Closed", "8": "Canceled",
	},
	"escalation":  {"0": "Normal", "1": "Moderate", "2": "High", "3": "Overdue"},
	"approval":    {"not requested": "Not Yet Requested", "requested": "Requested", "approved": "Approved", "rejected": "Rejected"},
	"upon_reject": {"cancel": "Cancel all future Tasks", "goto": "Go to a previous approval activity"},
	"notify":      {"1": "Do Not Notify", "2": "Send Email"},
}

func (in *Instance) sortedTables() []*table {
	all := make([]*table, 0, len(in.tables))
	for _, t := range in.tables {
		all = append(all, t)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	return all
}

// describe adds the sys_db_object row of a table and the sys_dictionary rows of its own columns.
func (in *Instance) describe(t *table) {
	obj, dict := in.tables["sys_db_object"], in.tables["sys_dictionary"]
	if obj == nil || dict == nil {
		return
	}
	fields := map[string]string{
		"sys_id": hashID("sys_db_object", t.name), "name": t.name, "label": t.label, "is_extendable": "true",
		"access": "public", "sys_created_on": schemaTime, "sys_updated_on": schemaTime,
		"sys_created_by": "system", "sys_updated_by": "system", "sys_name": t.label,
	}
	if t.parent != nil {
		fields["super_class"] = hashID("sys_db_object", t.parent.name)
	}
	in.insertKnown(obj, fields)
	in.describeColumns(t, append([]*column{{kind: "collection", label: t.label}}, t.lay.cols...))
}

// schemaTime is when the instance's own dictionary was made.
const schemaTime = "2015-01-01 00:00:00"

func (in *Instance) describeColumns(t *table, cols []*column) {
	dict := in.tables["sys_dictionary"]
	if dict == nil {
		return
	}
	for _, c := range cols {
		if t.parent != nil && c.name != "" && t.parent.lay.col(c.name) != nil {
			continue
		}
		fields := map[string]string{
			"sys_id": hashID("sys_dictionary", t.name, c.name), "name": t.name, "element": c.name,
			"internal_type": c.kind, "column_label": c.label, "reference": c.reference,
			"mandatory": boolText(c.mandatory), "read_only": boolText(c.readOnly), "active": "true",
			"default_value": c.def, "choice": c.choice, "primary": boolText(c.name == "sys_id"),
			"sys_created_on": schemaTime, "sys_updated_on": schemaTime,
			"sys_created_by": "system", "sys_updated_by": "system",
		}
		if c.maxLen > 0 {
			fields["max_length"] = itoa(c.maxLen)
		}
		if root := dict.root(); root.ids[in.fold(fields["sys_id"])] == nil {
			in.insertKnown(dict, fields)
		}
	}
}

// insertKnown inserts a row of the schema itself, dropping fields that the table does not have.
func (in *Instance) insertKnown(t *table, fields map[string]string) {
	for name := range fields {
		if t.lay.col(name) == nil {
			delete(fields, name)
		}
	}
	in.insert(t, fields)
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
