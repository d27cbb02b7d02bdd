-- A database goes on in a fresh one, main, with the full one attached as old: all that rows to come
-- refer to. meta names the run. Counts of gaps go on too: they are sums since the run began.
INSERT INTO runs SELECT * FROM old.runs
WHERE uuid = (SELECT value FROM main.meta WHERE key = 'run_uuid');
INSERT INTO meta SELECT key, value FROM old.meta WHERE key = 'spool:' || (SELECT uuid FROM main.runs);
INSERT INTO settings SELECT * FROM old.settings WHERE run_id IN (SELECT run_id FROM main.runs);
INSERT INTO arms SELECT * FROM old.arms WHERE run_id IN (SELECT run_id FROM main.runs);
INSERT INTO gaps SELECT * FROM old.gaps WHERE run_id IN (SELECT run_id FROM main.runs);
INSERT INTO sequences SELECT * FROM old.sequences
WHERE run_id IN (SELECT run_id FROM main.runs)
  AND seq_id > (SELECT max(seq_id) FROM old.sequences) - 1000;
INSERT INTO forwards SELECT * FROM old.forwards
WHERE forward_id > (SELECT max(forward_id) FROM old.forwards) - 1000 AND duration_ns IS NULL;
INSERT INTO modules SELECT * FROM old.modules;
INSERT INTO kernels SELECT * FROM old.kernels;
INSERT INTO launch_configs SELECT * FROM old.launch_configs;
INSERT INTO kernel_lists SELECT * FROM old.kernel_lists;
INSERT INTO kernel_list_items SELECT * FROM old.kernel_list_items;
INSERT INTO list_numbers SELECT * FROM old.list_numbers
WHERE run_id IN (SELECT run_id FROM main.runs);
INSERT INTO graph_execs SELECT * FROM old.graph_execs WHERE run_id IN (SELECT run_id FROM main.runs);
INSERT INTO calibrations SELECT * FROM old.calibrations;
