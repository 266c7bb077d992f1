-- A database of schema version 1 as the first release wrote it. Never edited.
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE conversations (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: settings remember the last one
        title TEXT NOT NULL,                   -- '' until the first message names it
        system_prompt TEXT NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        deleted_at REAL                        -- set while a deletion can be undone
    );
INSERT INTO "conversations" VALUES(1,'Why is the sky blue?','Be brief.',1,1790000000.0,1790000003.0,NULL);
INSERT INTO "conversations" VALUES(2,'Deleted','',0,1790000004.0,1790000004.0,1790000005.0);
CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conversation_id INTEGER NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
        parent_id INTEGER REFERENCES messages (id) ON DELETE CASCADE,  -- NULL for a first message
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        text TEXT NOT NULL,
        status TEXT NOT NULL
            CHECK (status IN ('complete', 'streaming', 'stopped', 'failed', 'interrupted')),
        stop_reason TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '',        -- the sentence of a failed answer
        seed INTEGER,                          -- this and what follows: answers only
        target TEXT,
        draft TEXT,
        draft_length INTEGER,                  -- NULL for automatic
        temperature REAL,
        mode TEXT,
        sampling TEXT,                         -- JSON of every sampling parameter
        stats TEXT NOT NULL DEFAULT '',        -- JSON of the figures so far
        writer TEXT NOT NULL DEFAULT '',       -- the process that streams it, as 'pid:start time'
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL
    );
INSERT INTO "messages" VALUES(1,1,NULL,'user','Why is the sky blue?','complete','','',NULL,NULL,NULL,NULL,NULL,NULL,NULL,'','',1790000001.0,1790000001.0);
INSERT INTO "messages" VALUES(2,1,1,'assistant','Light scat','streaming','','',7,'target.gguf','draft.gguf',3,0.8,'fast','{"temperature": 0.8, "top_k": 40}','{"n_rounds":1,"n_committed":2}','4194300:1.00',1790000002.0,1790000003.0);
CREATE TABLE rounds (
        message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        line TEXT NOT NULL,                    -- a trace line as it came: header, prompt, round, end
        PRIMARY KEY (message_id, seq)
    );
INSERT INTO "rounds" VALUES(2,0,'{"trace": 1}');
INSERT INTO "rounds" VALUES(2,1,'{"event":"round","round":0,"position":0,"drafted":[],"target_token":{"id":5,"text":"Light scat","fate":"plain"},"text_length":10,"draft_ms":0.0,"verify_ms":5.0,"host_ms":0.1}');
CREATE INDEX messages_by_conversation ON messages (conversation_id);
CREATE INDEX messages_by_parent ON messages (parent_id);
CREATE INDEX messages_streaming ON messages (status) WHERE status = 'streaming';
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('conversations',2);
INSERT INTO "sqlite_sequence" VALUES('messages',2);
COMMIT;
