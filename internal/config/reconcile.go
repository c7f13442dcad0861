package config

import "path/filepath"

// ReconcileFolder is where jobs and actions are: reconcile_dir, from the config
// file's own folder on. Empty: there are none.
func (c *Config) ReconcileFolder() string {
	if c.ReconcileDir == "" || filepath.IsAbs(c.ReconcileDir) {
		return c.ReconcileDir
	}
	return filepath.Join(filepath.Dir(c.File), c.ReconcileDir)
}
