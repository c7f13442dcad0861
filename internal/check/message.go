package check

import (
	"maps"
	"slices"
	"strings"
)

// message is one possible answer of a check. Its texts hold {names}; the keys of
// the catalog are check.<code>.sentence, .meaning and .mend.
type message struct {
	severity                Severity
	area                    string
	sentence, meaning, mend string
}

// messages are all answers there are, by code and variant.
var messages = map[string]message{
	"console.database.ok": {Passed, "console", "The console's database answers: PostgreSQL {version}.", "", ""},
	"console.database.down": {Critical, "console", "The console's database cannot be reached.",
		"Nothing is drained, shown or replayed.", "Start the database, or correct database in the config."},
	"console.database.old": {Critical, "console", "The console's database is PostgreSQL {version}, which is older than 14.",
		"Statements fail that the console needs.", "Upgrade the server to 14 or newer."},
	"console.migrations.ok": {Passed, "console", "The console's tables are up to date.", "", ""},
	"console.migrations.pending": {Critical, "console", "The console's database lacks {n} migrations.",
		"Pages and drains fail.", "Run console migrate."},
	"console.migrations.unknown": {NotChecked, "console", "Whether the console's tables are up to date could not be looked at.", "", "Mend the database, then check again."},
	"console.months.ok":          {Passed, "console", "Letters of this month and the next have a partition.", "", ""},
	"console.months.missing": {Critical, "console", "There is no partition for letters of {months}.",
		"Letters of that time cannot be stored: draining stops.", "Start console serve, which adds months ahead of time, or run console migrate."},
	"console.kept.none": {Passed, "console", "No month of letters is kept beyond its time.", "", ""},
	"console.kept.open": {Warning, "console", "Letters of {months} are open beyond their time.",
		"These months are not dropped while letters of them are open or replaying.", "Resolve or discard them; a fault can be discarded by age."},
	"console.kept.unknown":   {NotChecked, "console", "Whether months of letters are kept beyond their time could not be looked at.", "", "Mend the database, then check again."},
	"console.months.unknown": {NotChecked, "console", "Partitions for letters could not be looked at.", "", "Mend the database, then check again."},

	"connection.reach.ok": {Passed, "connection", "Connection {name} answers.", "", ""},
	"connection.reach.down": {Critical, "connection", "Connection {name} cannot be reached.",
		"Verdicts of its groups are unknown, its consumers wait.", "Start the database, or correct the connection in the config."},
	"repair.reach.ok": {Passed, "connection", "Compensations reach {name} by their credential.", "", ""},
	"repair.reach.down": {Critical, "connection", "Compensations cannot reach {name} by their credential.",
		"Repairs that write to it wait.", "Correct compensation_url of the connection, or start the database."},
	"repair.barrier.ok": {Passed, "connection", "Connection {name} has oncemore_barrier.", "", ""},
	"repair.barrier.missing": {Warning, "connection", "Connection {name} has no table oncemore_barrier.",
		"Compensations of kind sql are refused there: without it a statement could be executed twice.", "Run console migrate --target {name}."},
	"repair.barrier.unknown": {NotChecked, "connection", "oncemore_barrier of connection {name} could not be looked at.", "", "Mend the connection, then check again."},
	"cluster.reach.ok":       {Passed, "topic", "Cluster {name} answers.", "", ""},
	"cluster.reach.down": {Critical, "topic", "Cluster {name} cannot be reached.",
		"Nothing is drained from it or replayed to it, its consumers wait.", "Start the brokers, or correct the cluster in the config."},

	"redis.reach.ok": {Passed, "connection", "Redis {name} answers.", "", ""},
	"redis.reach.down": {Warning, "connection", "Redis {name} cannot be used.",
		"Nothing is wrong by that, but each duplicate asks the database.", "Start Redis, or correct its address in the config."},

	"cluster.queues.ok":   {Passed, "topic", "The queues of {name} can be looked at.", "", ""},
	"cluster.queues.down": {NotChecked, "topic", "The queues of {name} could not be looked at.", "", "Start the management plugin, or correct management_url of the cluster."},
	"cluster.queues.unset": {Note, "topic", "The queues of {name} cannot be looked at: it has no management_url.",
		"How long messages may wait in them is not known: consume records of its groups are kept for ever.", "Set management_url of the cluster, or redelivery_horizon of its consumers."},

	"retention.keeper.ok": {Passed, "connection", "Consume records of {name} can be dropped as configured.", "", ""},
	"retention.keeper.bad": {Critical, "connection", "Consume records of {name} cannot be dropped as configured.",
		"The table grows without end. Where the archive is missing, consumers wait.", "Run console migrate --target {name}, or grant the writer what it lacks."},

	"consume_record.table.ok": {Passed, "connection", "Connection {name} has a sound mq_consume_record.", "", ""},
	"consume_record.table.missing": {Critical, "connection", "Connection {name} has no table mq_consume_record.",
		"Its consumers wait: without the record an effect could happen twice.", "Run console migrate --target {name}."},
	"consume_record.table.unknown": {NotChecked, "connection", "mq_consume_record of connection {name} could not be looked at.", "", "Mend the connection, then check again."},
	"consume_record.unique.missing": {Critical, "connection", "mq_consume_record of connection {name} has no unique key on exactly (event_id, consumer_group).",
		"Duplicates take effect again.", "Add it: alter table mq_consume_record add constraint uk_event_consumer unique (event_id, consumer_group)."},
	"consume_record.engine.bad": {Critical, "connection", "mq_consume_record of connection {name} is not an InnoDB table.",
		"A record is not undone together with its effect.", "Convert it: alter table mq_consume_record engine = InnoDB."},
	"consume_record.columns.missing": {Critical, "connection", "mq_consume_record of connection {name} lacks {columns}.",
		"Nothing can be recorded.", "Run console migrate --target {name} on an empty schema, or add the columns."},
	"consume_record.collation.loose": {Critical, "connection", "{columns} of mq_consume_record of connection {name} compare loosely.",
		"Two events whose ids differ by case or accent count as one: the second is lost.", "Give both columns the collation \"C\", in MySQL utf8mb4_bin."},
	"consume_record.length.short": {Warning, "connection", "{columns} of mq_consume_record of connection {name} hold fewer than 255 characters.",
		"An event with a longer id becomes a dead letter.", "Widen the columns to 255."},

	"evidence.table.ok": {Passed, "evidence", "The evidence of {group} can be read.", "", ""},
	"evidence.table.missing": {Critical, "evidence", "The evidence of {group} cannot be read: table {table} does not exist, or may not be seen, on connection {connection}.",
		"Verdicts of the group are unknown.", "Correct evidence.table, or grant usage and select to the console's user."},
	"evidence.columns.missing": {Critical, "evidence", "The evidence of {group} cannot be read: table {table} lacks {columns}.",
		"Verdicts of the group are unknown.", "Correct the column names in evidence."},
	"evidence.select.denied": {Critical, "evidence", "The evidence of {group} cannot be read: the console's user may not select from {table}.",
		"Verdicts of the group are unknown.", "Grant select on the table."},
	"evidence.table.unknown": {NotChecked, "evidence", "The evidence of {group} could not be looked at.", "", "Mend connection {connection}, then check again."},
	"evidence.index.ok":      {Passed, "evidence", "An index serves the look-up of {group}.", "", ""},
	"evidence.index.missing": {Warning, "evidence", "No index serves the look-up of {group} in {table}.",
		"Each verdict reads the whole table.", "Create an index on ({event_id}, {consumer_group})."},
	"evidence.index.unknown": {NotChecked, "evidence", "Whether an index serves the look-up of {group} could not be looked at.", "", "Mend connection {connection}, then check again."},
	"evidence.lookup.ok":     {Passed, "evidence", "A look-up in the evidence of {group} works.", "", ""},
	"evidence.lookup.failed": {Critical, "evidence", "A look-up in the evidence of {group} fails.",
		"Verdicts of the group are unknown, and nothing of it is replayed safely.", "Correct what the line below names; console evidence ask tries it."},
	"evidence.group.absent": {Warning, "evidence", "No record in {table} that was looked at is of {group}.",
		"If the name or the columns are wrong, no event seems to have a record, and each replay looks safe.", "Correct group_value or the column names of the evidence. If the group has not consumed anything yet: nothing."},
	"evidence.readonly.unknown": {NotChecked, "evidence", "Whether the console's user may write to {table}, the evidence of {group}, could not be looked at.", "", "Mend connection {connection}, then check again."},
	"evidence.readonly.ok":      {Passed, "evidence", "The console only reads the evidence of {group}.", "", ""},
	"evidence.readonly.writes": {Warning, "evidence", "The console's user may write to {table}, the evidence of {group}.",
		"The console never does, but a stolen credential could.", "Give the connection a user with select alone, and consumers a writer of their own."},

	"consumer.event_id.ok":    {Passed, "consumer", "The event id of {group} comes from the producer.", "", ""},
	"consumer.event_id.bad":   {Critical, "consumer", "The event id of {group} is not usable.", "Duplicates are not recognised, or nothing is consumed.", "Name a header or a JSON path that the producer fills with a stable id."},
	"consumer.statement.ok":   {Passed, "consumer", "The database understands the statement of {group}.", "", ""},
	"consumer.statement.bad":  {Critical, "consumer", "The database refuses the statement of {group}.", "The consumer waits and consumes nothing.", "Correct effect.sql, or the tables it names."},
	"consumer.statement.down": {NotChecked, "consumer", "The statement of {group} could not be tried.", "", "Mend connection {connection}, then check again."},
	"consumer.http_key.ok":    {Passed, "consumer", "Each http effect on {base} has idempotency keys of its own.", "", ""},
	"consumer.http_key.equal": {Critical, "consumer", "{groups} send equal idempotency keys to {base}.",
		"The service takes the second group's call for a repeat of the first: its effect is lost.", "Set idempotency_key: effect for all but one of them."},
	"consumer.topic.ok":      {Passed, "consumer", "The topics of {group} exist.", "", ""},
	"consumer.topic.missing": {Critical, "consumer", "{group} reads topics that do not exist: {topics}.", "The group consumes nothing from there until they do.", "Create the topics, or correct topics in the config."},
	"consumer.topic.unknown": {NotChecked, "consumer", "The topics of {group} could not be looked at.", "", "Mend cluster {cluster}, then check again."},
	"consumer.replay.ok":     {Passed, "consumer", "{topic} has as many partitions as the topics of {group}.", "", ""},
	"consumer.replay.missing": {Note, "consumer", "{topic} does not exist yet.",
		"Replays to {group} alone are not possible before.", "Nothing: the consumer creates it when it starts."},
	"consumer.replay.partitions": {Warning, "consumer", "{topic} has {n} partitions, the topics of {group} have {want}.",
		"A replay of a key goes to another partition number than its first delivery.", "Give both the same number of partitions."},
	"consumer.replay.differ": {Note, "consumer", "The topics of {group} differ in their number of partitions.",
		"{topic} can match only one of them.", "Nothing, unless the order of replays matters."},
	"consumer.dead_letter.ok":      {Passed, "consumer", "The dead-letter topic of {group} exists.", "", ""},
	"consumer.dead_letter.missing": {Note, "consumer", "{topics}, the dead-letter topic of {group}, does not exist yet.", "A failing event has to wait for it.", "Nothing: the consumer creates it when it starts."},
	"consumer.dead_letter.undrained": {Warning, "consumer", "{topics}, the dead-letter topic of {group}, belongs to no source.",
		"Its letters are not shown.", "Add a source with a pattern that matches it."},

	"topic.acks.ok": {Passed, "topic", "An acknowledged record on {cluster} is on at least two replicas.", "", ""},
	"topic.acks.weak": {Warning, "topic", "On {cluster} an acknowledged record may be on one broker only.",
		"acks=all is worth as much as min.insync.replicas and the replication: if that broker is lost, so is the record.", "Set replication to 3 and min.insync.replicas to 2 for these topics."},
	"topic.acks.unknown": {NotChecked, "topic", "Replication on {cluster} could not be looked at.", "", "Mend cluster {cluster}, then check again."},

	"source.queue.ok": {Passed, "source", "Queues that source {pattern} matches on {cluster}: {n}.",
		"", ""},
	"source.queue.none": {Warning, "source", "No queue matches source {pattern} on {cluster}.",
		"Nothing is drained.", "Correct the pattern, unless the queue is yet to come."},
	"source.queue.unknown": {NotChecked, "source", "Whether a queue matches source {pattern} could not be looked at.",
		"", "Set management_url of cluster {cluster}, or mend it, then check again."},
	"source.stream.found": {Warning, "source", "{queues}, of source {pattern}, are streams and are not drained.",
		"Their dead letters are not shown.", "Point the dead-letter exchange to a classic or quorum queue."},
	"source.limit.found": {Warning, "source", "{queues}, of source {pattern}, have a delivery limit and are not copied.",
		"A message that is read and given back so often would be dropped; until then nothing of these queues is shown.", "Drain them, or lift their delivery limit."},
	"source.drops.found": {Warning, "source", "{queues}, of source {pattern}, may drop dead letters before they are drained.",
		"What is dropped is lost without a trace.", "Take the limit or the time to live off these queues."},
	"consumer.queue.ok": {Passed, "consumer", "{queue}, which {group} consumes, exists.",
		"", ""},
	"consumer.queue.missing": {Critical, "consumer", "{queue}, which {group} consumes, does not exist.",
		"The group consumes nothing until it does.", "Declare the queue, or correct queue in the config."},
	"consumer.queue.unknown": {NotChecked, "consumer", "{queue}, which {group} consumes, could not be looked at.",
		"", "Set management_url of cluster {cluster}, or mend it, then check again."},
	"consumer.drops.found": {Warning, "consumer", "The queue of {group}, or its dead-letter queue, may drop messages that nobody has handled.",
		"What is dropped is lost without a trace.", "Give the queue a dead-letter exchange, or take the limit or the time to live off it."},
	"consumer.dead_queue.ok": {Passed, "consumer", "{dead}, the dead-letter queue of {group}, is drained.",
		"", ""},
	"consumer.dead_queue.undrained": {Warning, "consumer", "{dead}, the dead-letter queue of {group}, belongs to no source.",
		"Its letters are not shown.", "Add a source with a pattern that matches it."},
	"source.match.ok":      {Passed, "source", "Topics that source {pattern} matches on {cluster}: {n}.", "", ""},
	"source.match.none":    {Warning, "source", "No topic matches source {pattern} on {cluster}.", "Nothing is drained.", "Correct the pattern, unless the topic is yet to come."},
	"source.match.unknown": {NotChecked, "source", "Whether a topic matches source {pattern} could not be looked at.", "", "Mend cluster {cluster}, then check again."},
	"source.event_id.ok":   {Passed, "source", "The event id of source {pattern} comes from the producer.", "", ""},
	"source.event_id.bad":  {Critical, "source", "The event id of source {pattern} is not usable.", "Its letters have no identity, and none is safe to replay.", "Name a header or a JSON path that the producer fills with a stable id."},

	"retention.promise.ok":    {Passed, "retention", "Consume records of {group} outlive every way an event can come back.", "", ""},
	"retention.promise.never": {Passed, "retention", "Consume records of {group} are never dropped.", "", ""},
	"retention.promise.short": {Warning, "retention", "Consume records of {group} are kept {kept}, {need} are needed.",
		"An event that comes back later finds no record. A consumer would apply it again; replays are judged expired.", "Keep records for {need}, or shorten what is added up here."},
	"retention.promise.endless": {Warning, "retention", "Consume records of {group} are kept {kept}, but its events may come back at any time.",
		"An event that comes back later finds no record. A consumer would apply it again; replays are judged expired.", "Never drop the records, or limit what is endless here."},
	"retention.promise.unknown": {NotChecked, "retention", "What consume records of {group} have to outlive could not be computed.",
		"", "Mend cluster {cluster}, or set redelivery_horizon of a consumer that reads a queue; then check again."},
}

// Messages lists the catalog: key of each text, and the English text with its {names}.
func Messages() map[string]string {
	all := map[string]string{}
	for code, m := range messages {
		for part, text := range map[string]string{"sentence": m.sentence, "meaning": m.meaning, "mend": m.mend} {
			if text != "" {
				all["check."+code+"."+part] = text
			}
		}
	}
	return all
}

// values are what a message's {names} stand for.
type values map[string]string

func (v values) text(code, part, english string) Text {
	if english == "" {
		return Text{}
	}
	replace := make([]string, 0, 2*len(v))
	for _, name := range slices.Sorted(maps.Keys(v)) {
		replace = append(replace, "{"+name+"}", v[name])
	}
	return Text{Key: "check." + code + "." + part, Args: v, En: strings.NewReplacer(replace...).Replace(english)}
}
