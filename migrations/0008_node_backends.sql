-- Which sandbox backends a node has loaded, as NAME=STATE (up, down): a node takes over no turn whose sandbox only others
-- can reach, and operators see what each node sees.
ALTER TABLE nodes ADD COLUMN backends text[] NOT NULL DEFAULT '{}';
