package main

import (
	"context"

	"oncemore/dlq"
	"oncemore/internal/config"
)

// evidence is where a group's records are looked up, by a pool that only reads.
func (c *connections) evidence(ctx context.Context, e config.Evidence) (*dlq.Evidence, error) {
	made := &dlq.Evidence{
		Connection: e.Connection, Table: e.Table, EventID: e.EventID, ConsumerGroup: e.ConsumerGroup, GroupValue: e.GroupValue,
		ConsumedAt: e.ConsumedAt, Where: e.Where, CompleteSince: e.CompleteSince, Retention: e.Retention,
	}
	var err error
	if c.isMySQL(e.Connection) {
		made.MySQL, err = c.mysqlReader(e.Connection)
	} else {
		made.Pool, err = c.reader(ctx, e.Connection)
	}
	if err != nil {
		return nil, err
	}
	return made, nil
}

// findEvidence looks at the schema of a connection, for the settings' wizard.
func (a *app) findEvidence(ctx context.Context, connection string) ([]dlq.EvidenceProposal, error) {
	return findEvidence(ctx, a.conf, a.business, connection)
}

func (a *app) connectionNames() []string {
	var names []string
	for _, c := range a.conf.Connections {
		names = append(names, c.Name)
	}
	return names
}
