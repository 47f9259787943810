package scenario

// homemadeTable and homemadeTrigger are fencing as people write it
// themselves: the database remembers the highest number that it was shown,
// and refuses lower ones. It asks nobody whether the number is anybody's.
const (
	homemadeTable = `CREATE TABLE IF NOT EXISTS highest (key text PRIMARY KEY, token bigint NOT NULL);
		CREATE OR REPLACE FUNCTION highest_wins() RETURNS trigger LANGUAGE plpgsql AS $$
		DECLARE
			shown bigint := pg_catalog.current_setting('fence.token')::bigint;
		BEGIN
			INSERT INTO highest AS h VALUES (pg_catalog.current_setting('fence.key'), shown)
				ON CONFLICT (key) DO UPDATE SET token = excluded.token WHERE h.token <= excluded.token;
			IF NOT FOUND THEN
				RAISE 'number % is too low', shown USING ERRCODE = 'FM001';
			END IF;
			RETURN NULL;
		END $$;`
	homemadeTrigger = `CREATE TRIGGER highest_wins BEFORE INSERT OR UPDATE OR DELETE ON %s EXECUTE FUNCTION highest_wins()`
)
