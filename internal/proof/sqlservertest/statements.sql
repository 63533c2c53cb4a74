-- One row per partition ever claimed. Times are UTC. Each table is clustered by group and partition, so
-- that a statement locks rows of its own partition only.
CREATE TABLE sluice_checkpoints (
    group_key         binary(32)    NOT NULL, -- SHA-256 of namespace, topic and consumer_group, which together are too long for a key
    namespace         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic             nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group    nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition         nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    incarnation       nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- of the topic: its creation time
    sequence_number   bigint        NOT NULL, -- the last event done; -1: none, -2: no start chosen yet
    event_offset      nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner             nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL, -- who claimed it last; empty if an operator set it
    epoch             bigint        NOT NULL, -- of that claim
    claims            bigint        NOT NULL, -- claims without progress since
    trial_sequence    bigint        NOT NULL, -- the event being tried, if trial_attempts is not 0
    trial_dead_letter bigint        NOT NULL DEFAULT 0, -- id; 0: the event after the position
    trial_attempts    bigint        NOT NULL,
    trial_error       nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    trial_unreturned  bigint        NOT NULL DEFAULT 0, -- attempts that began and never returned
    updated_at        datetime2(6)  NOT NULL,
    -- What is done after the position, for deliveries that are not transactions: runs of events, as
    -- "missing+more, ...". It counts only where done_epoch is the checkpoint's epoch.
    done              nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
    done_epoch        bigint        NOT NULL DEFAULT 0,
    CONSTRAINT sluice_checkpoints_key PRIMARY KEY CLUSTERED (group_key, partition)
);

CREATE TABLE sluice_dead_letters (
    group_key       binary(32)    NOT NULL,
    id              bigint        IDENTITY NOT NULL, -- has gaps, also of many numbers after a restart of the server
    namespace       nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic           nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group  nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    incarnation     nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition       nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    sequence_number bigint        NOT NULL,
    event_offset    nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL,
    enqueued_at     datetime2(6)  NOT NULL,
    failed_at       datetime2(6)  NOT NULL,
    error           nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    attempts        bigint        NOT NULL,
    status          nvarchar(16)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- dead, retry or discarded
    next_attempt    datetime2(6),           -- of status retry
    partition_key   nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_id      nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    correlation_id  nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    content_type    nvarchar(max) COLLATE Latin1_General_100_BIN2 NOT NULL,
    has_body        bit           NOT NULL, -- 0: the event is only in the log
    body            varbinary(max),
    properties      nvarchar(max) COLLATE Latin1_General_100_BIN2, -- JSON; types other than JSON's are named
    CONSTRAINT sluice_dead_letters_event PRIMARY KEY CLUSTERED (group_key, partition, incarnation, sequence_number),
    CONSTRAINT sluice_dead_letters_id UNIQUE (id)
);

CREATE INDEX sluice_dead_letters_status ON sluice_dead_letters (group_key, partition, status, sequence_number);

-- What the steps of a partition have seen of causation IDs: one row per step and origin of IDs,
-- removed when later ones let it be forgotten.
CREATE TABLE sluice_seen (
    group_key      binary(32)     NOT NULL,
    namespace      nvarchar(255)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic          nvarchar(256)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group nvarchar(128)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition      nvarchar(64)   COLLATE Latin1_General_100_BIN2 NOT NULL,
    origin_key     binary(32)     NOT NULL, -- SHA-256 of origin, which is too long for a key
    origin         nvarchar(4000) COLLATE Latin1_General_100_BIN2 NOT NULL, -- source/partition of the IDs
    step           bigint         NOT NULL, -- the step's last event
    epoch          bigint         NOT NULL, -- the origin's highest so far
    low            bigint         NOT NULL, -- its watermark
    [top]          bigint         NOT NULL, -- the highest event among ids
    seen_at        datetime2(6)   NOT NULL, -- by the log's clock
    ids            nvarchar(max)  COLLATE Latin1_General_100_BIN2 NOT NULL, -- new with the step: n:first,distance+more,...;n:...
    CONSTRAINT sluice_seen_step PRIMARY KEY CLUSTERED (group_key, partition, origin_key, step)
);
GO
-- One row per partition ever leased. Times are UTC. Texts are equal only if their bytes are, but for
-- trailing blanks; group_key tells groups apart that differ in those alone.
CREATE TABLE sluice_leases (
    group_key      binary(32)    NOT NULL, -- SHA-256 of namespace, topic and consumer_group, which together are too long for a key
    namespace      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    topic          nvarchar(256) COLLATE Latin1_General_100_BIN2 NOT NULL,
    consumer_group nvarchar(128) COLLATE Latin1_General_100_BIN2 NOT NULL,
    partition      nvarchar(64)  COLLATE Latin1_General_100_BIN2 NOT NULL,
    owner          nvarchar(512) COLLATE Latin1_General_100_BIN2 NOT NULL, -- the process that has, or had, the partition
    epoch          bigint        NOT NULL, -- rises with every owner
    expires_at     datetime2(6),           -- NULL once the lease was released
    renewed_at     datetime2(6)  NOT NULL,
    CONSTRAINT sluice_leases_key PRIMARY KEY CLUSTERED (group_key, partition)
);
GO
-- That the partition has a checkpoint: programs that know version 1 keep this column, and do not write it.
ALTER TABLE sluice_leases ADD began_incarnation nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL
    CONSTRAINT sluice_leases_began_incarnation DEFAULT N''; -- of the topic whose start was stored; empty: none
GO
-- Where the events begin that a checkpoint accounts for. Programs that know version 2 keep these
-- columns, and do not write them: what they begin says nothing, and what they reset no longer says it.
ALTER TABLE sluice_checkpoints ADD began_sequence bigint NOT NULL -- the event before the first one
    CONSTRAINT sluice_checkpoints_began_sequence DEFAULT 0;
ALTER TABLE sluice_checkpoints ADD began_how nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL -- start, import or set; empty: not known
    CONSTRAINT sluice_checkpoints_began_how DEFAULT N'';
GO
-- Which dead letters were copied to another system. Programs that know version 1 store dead letters
-- without it: those are not copied yet.
ALTER TABLE sluice_dead_letters ADD copied bit NOT NULL CONSTRAINT sluice_dead_letters_not_copied DEFAULT 0;

-- In the same batch the new column has no name yet.
EXEC(N'CREATE INDEX sluice_dead_letters_copied ON sluice_dead_letters (group_key, partition, copied, id)');
GO
DECLARE @level int = @@TRANCOUNT, @mine int = CASE WHEN XACT_STATE() = 1 AND APPLOCK_MODE(N'public', @p1, N'Transaction') = N'Exclusive' THEN 1 ELSE 0 END;
		IF @level = 1 AND @mine = 1
		UPDATE sluice_checkpoints SET
			sequence_number = @p2, event_offset = @p3, claims = 1,
			trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0, done = '', updated_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		OUTPUT 1 WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p4, NCHAR(31), @p5, NCHAR(31), @p6)) AS binary(32)) AND partition = @p7 AND owner = @p8 AND epoch = @p9 AND sequence_number = @p10
GO
DECLARE @result int;
		EXEC @result = sp_getapplock @Resource = N'sluice migration', @LockMode = N'Exclusive', @LockOwner = N'Session', @LockTimeout = 60000;
		SELECT CASE WHEN @result >= 0 THEN 1 ELSE 0 END
GO
DELETE FROM #sluice_parked
GO
DELETE FROM sluice_dead_letters
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND incarnation = @p4 AND partition = @p5 AND sequence_number > @p6 AND sequence_number <= @p7
			AND sequence_number NOT IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p8))
GO
DELETE FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p4))
GO
DELETE FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND status = 'retry' AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p5))
GO
DELETE FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND status = 'retry' AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p4))
GO
DELETE FROM sluice_seen
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND origin_key = CAST(HASHBYTES('SHA2_256', @p5) AS binary(32)) AND ([top] <= @p6 OR step >= @p7)
GO
DELETE FROM sluice_seen WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND seen_at < @p5
GO
DELETE FROM sluice_seen WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND step > @p5
GO
DELETE t FROM [dbo].[t] AS t JOIN (SELECT r.* FROM (SELECT s.*, RANK() OVER (PARTITION BY s.[a] ORDER BY CASE WHEN s.[v] IS NULL THEN 1 ELSE 0 END, s.[v] DESC) AS sluice_rank FROM [#sluice_keys] AS s) AS r WHERE r.sluice_rank = 1) AS g ON t.[a] = g.[a] WHERE g.sluice_deletes = 1 AND (t.[v] IS NULL OR t.[v] <= g.[v])
GO
DELETE t FROM [dbo].[t] AS t JOIN [#sluice_keys] AS g ON t.[a] = g.[a] WHERE g.sluice_deletes = 1 AND 1 = 1
GO
DROP TABLE #sluice_parked
GO
EXEC sp_releaseapplock @Resource = N'sluice migration', @LockOwner = N'Session'
GO
IF OBJECT_ID(N'sluice_schema', N'U') IS NULL CREATE TABLE sluice_schema (
	component         nvarchar(64) NOT NULL PRIMARY KEY,
	version           bigint       NOT NULL,
	oldest_compatible bigint       NOT NULL, -- programs that know this version or a later one can work here
	applied_at        datetime2(6) NOT NULL  -- UTC
)
GO
IF OBJECT_ID(N'tempdb..[#sluice_changes]') IS NOT NULL DROP TABLE [#sluice_changes]
GO
IF OBJECT_ID(N'tempdb..[#sluice_keys]') IS NOT NULL DROP TABLE [#sluice_keys]
GO
INSERT INTO #sluice_parked (namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties) VALUES (@p1, @p2, @p3, @p4, @p5, @p6, @p7, @p8, @p9, @p10, @p11, @p12, @p13, @p14, @p15, @p16, @p17, @p18, CONVERT(varbinary(max), @p19), @p20), (@p21, @p22, @p23, @p24, @p25, @p26, @p27, @p28, @p29, @p30, @p31, @p32, @p33, @p34, @p35, @p36, @p37, @p38, CONVERT(varbinary(max), @p39), @p40), (@p41, @p42, @p43, @p44, @p45, @p46, @p47, @p48, @p49, @p50, @p51, @p52, @p53, @p54, @p55, @p56, @p57, @p58, CONVERT(varbinary(max), @p59), @p60), (@p61, @p62, @p63, @p64, @p65, @p66, @p67, @p68, @p69, @p70, @p71, @p72, @p73, @p74, @p75, @p76, @p77, @p78, CONVERT(varbinary(max), @p79), @p80), (@p81, @p82, @p83, @p84, @p85, @p86, @p87, @p88, @p89, @p90, @p91, @p92, @p93, @p94, @p95, @p96, @p97, @p98, CONVERT(varbinary(max), @p99), @p100), (@p101, @p102, @p103, @p104, @p105, @p106, @p107, @p108, @p109, @p110, @p111, @p112, @p113, @p114, @p115, @p116, @p117, @p118, CONVERT(varbinary(max), @p119), @p120), (@p121, @p122, @p123, @p124, @p125, @p126, @p127, @p128, @p129, @p130, @p131, @p132, @p133, @p134, @p135, @p136, @p137, @p138, CONVERT(varbinary(max), @p139), @p140), (@p141, @p142, @p143, @p144, @p145, @p146, @p147, @p148, @p149, @p150, @p151, @p152, @p153, @p154, @p155, @p156, @p157, @p158, CONVERT(varbinary(max), @p159), @p160), (@p161, @p162, @p163, @p164, @p165, @p166, @p167, @p168, @p169, @p170, @p171, @p172, @p173, @p174, @p175, @p176, @p177, @p178, CONVERT(varbinary(max), @p179), @p180), (@p181, @p182, @p183, @p184, @p185, @p186, @p187, @p188, @p189, @p190, @p191, @p192, @p193, @p194, @p195, @p196, @p197, @p198, CONVERT(varbinary(max), @p199), @p200), (@p201, @p202, @p203, @p204, @p205, @p206, @p207, @p208, @p209, @p210, @p211, @p212, @p213, @p214, @p215, @p216, @p217, @p218, CONVERT(varbinary(max), @p219), @p220), (@p221, @p222, @p223, @p224, @p225, @p226, @p227, @p228, @p229, @p230, @p231, @p232, @p233, @p234, @p235, @p236, @p237, @p238, CONVERT(varbinary(max), @p239), @p240), (@p241, @p242, @p243, @p244, @p245, @p246, @p247, @p248, @p249, @p250, @p251, @p252, @p253, @p254, @p255, @p256, @p257, @p258, CONVERT(varbinary(max), @p259), @p260), (@p261, @p262, @p263, @p264, @p265, @p266, @p267, @p268, @p269, @p270, @p271, @p272, @p273, @p274, @p275, @p276, @p277, @p278, CONVERT(varbinary(max), @p279), @p280), (@p281, @p282, @p283, @p284, @p285, @p286, @p287, @p288, @p289, @p290, @p291, @p292, @p293, @p294, @p295, @p296, @p297, @p298, CONVERT(varbinary(max), @p299), @p300), (@p301, @p302, @p303, @p304, @p305, @p306, @p307, @p308, @p309, @p310, @p311, @p312, @p313, @p314, @p315, @p316, @p317, @p318, CONVERT(varbinary(max), @p319), @p320), (@p321, @p322, @p323, @p324, @p325, @p326, @p327, @p328, @p329, @p330, @p331, @p332, @p333, @p334, @p335, @p336, @p337, @p338, CONVERT(varbinary(max), @p339), @p340), (@p341, @p342, @p343, @p344, @p345, @p346, @p347, @p348, @p349, @p350, @p351, @p352, @p353, @p354, @p355, @p356, @p357, @p358, CONVERT(varbinary(max), @p359), @p360), (@p361, @p362, @p363, @p364, @p365, @p366, @p367, @p368, @p369, @p370, @p371, @p372, @p373, @p374, @p375, @p376, @p377, @p378, CONVERT(varbinary(max), @p379), @p380), (@p381, @p382, @p383, @p384, @p385, @p386, @p387, @p388, @p389, @p390, @p391, @p392, @p393, @p394, @p395, @p396, @p397, @p398, CONVERT(varbinary(max), @p399), @p400)
GO
INSERT INTO [#sluice_changes] ([sluice_row], [sluice_deletes], [a], [v], [order]) VALUES (@p1, @p2, @p3, @p4, @p5)
GO
INSERT INTO [#sluice_keys] ([sluice_row], [sluice_deletes], [a]) VALUES (@p1, @p2, @p3), (@p4, @p5, @p6)
GO
INSERT INTO [#sluice_keys] ([sluice_row], [sluice_deletes], [a], [v]) VALUES (@p1, @p2, @p3, @p4), (@p5, @p6, @p7, @p8)
GO
INSERT INTO [dbo].[t] ([a], [order]) VALUES (@p1, @p2), (@p3, @p4), (@p5, @p6), (@p7, @p8), (@p9, @p10), (@p11, @p12), (@p13, @p14), (@p15, @p16), (@p17, @p18), (@p19, @p20), (@p21, @p22), (@p23, @p24), (@p25, @p26), (@p27, @p28), (@p29, @p30), (@p31, @p32), (@p33, @p34), (@p35, @p36), (@p37, @p38), (@p39, @p40), (@p41, @p42), (@p43, @p44), (@p45, @p46), (@p47, @p48), (@p49, @p50), (@p51, @p52), (@p53, @p54), (@p55, @p56), (@p57, @p58), (@p59, @p60), (@p61, @p62), (@p63, @p64), (@p65, @p66), (@p67, @p68), (@p69, @p70), (@p71, @p72), (@p73, @p74), (@p75, @p76), (@p77, @p78), (@p79, @p80), (@p81, @p82), (@p83, @p84), (@p85, @p86), (@p87, @p88), (@p89, @p90), (@p91, @p92), (@p93, @p94), (@p95, @p96), (@p97, @p98), (@p99, @p100), (@p101, @p102), (@p103, @p104), (@p105, @p106), (@p107, @p108), (@p109, @p110), (@p111, @p112), (@p113, @p114), (@p115, @p116), (@p117, @p118), (@p119, @p120), (@p121, @p122), (@p123, @p124), (@p125, @p126), (@p127, @p128), (@p129, @p130), (@p131, @p132), (@p133, @p134), (@p135, @p136), (@p137, @p138), (@p139, @p140), (@p141, @p142), (@p143, @p144), (@p145, @p146), (@p147, @p148), (@p149, @p150), (@p151, @p152), (@p153, @p154), (@p155, @p156), (@p157, @p158), (@p159, @p160), (@p161, @p162), (@p163, @p164), (@p165, @p166), (@p167, @p168), (@p169, @p170), (@p171, @p172), (@p173, @p174), (@p175, @p176), (@p177, @p178), (@p179, @p180), (@p181, @p182), (@p183, @p184), (@p185, @p186), (@p187, @p188), (@p189, @p190), (@p191, @p192), (@p193, @p194), (@p195, @p196), (@p197, @p198), (@p199, @p200)
GO
INSERT INTO sluice_checkpoints (group_key, namespace, topic, consumer_group, partition, incarnation, sequence_number, event_offset, owner, epoch, claims, trial_sequence, trial_attempts, trial_error, updated_at)
		VALUES (CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)), @p1, @p2, @p3, @p4, @p5, -2, '', @p6, @p7, 1, 0, 0, '', CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
INSERT INTO sluice_checkpoints (group_key, namespace, topic, consumer_group, partition, incarnation, sequence_number, event_offset, owner, epoch, claims, trial_sequence, trial_attempts, trial_error, updated_at, began_sequence, began_how, done_epoch)
		VALUES (CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)), @p1, @p2, @p3, @p4, @p5, @p6, @p7, '', 1, 0, 0, 0, '', CAST(SYSUTCDATETIME() AS datetime2(6)), @p8, @p9, 1)
GO
INSERT INTO sluice_leases (group_key, namespace, topic, consumer_group, partition, owner, epoch, expires_at, renewed_at)
		VALUES (CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)), @p1, @p2, @p3, @p4, @p5, @p6, DATEADD(millisecond, CAST(@p7 AS int), CAST(SYSUTCDATETIME() AS datetime2(6))), CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
INSERT INTO sluice_seen (origin_key, group_key, namespace, topic, consumer_group, partition, origin, step, epoch, low, [top], seen_at, ids)
		VALUES (CAST(HASHBYTES('SHA2_256', @p5) AS binary(32)), CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)), @p1, @p2, @p3, @p4, @p5, @p6, @p7, @p8, @p9, @p10, @p11)
GO
KILL %d
GO
ROLLBACK TRANSACTION sluice_nested_1
GO
SAVE TRANSACTION sluice_nested_1
GO
SELECT 1
GO
SELECT 1 FROM sluice_checkpoints WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND updated_at = @p5
GO
SELECT @@TRANCOUNT, CAST(CASE WHEN XACT_STATE() = 1 AND APPLOCK_MODE(N'public', @p1, N'Transaction') = N'Exclusive' THEN 1 ELSE 0 END AS bit)
GO
SELECT CASE WHEN OBJECT_ID(N'sluice_schema', N'U') IS NULL THEN 0 ELSE 1 END
GO
SELECT CAST(@@SPID AS bigint)
GO
SELECT CAST(SERVERPROPERTY('ProductVersion') AS nvarchar(128)), CAST(SERVERPROPERTY('EngineEdition') AS int),
			CAST(CASE WHEN @@VERSION LIKE N'Babelfish%' THEN 1 ELSE 0 END AS bit),
			(SELECT COALESCE(MAX(CAST(compatibility_level AS int)), 130) FROM sys.databases WHERE name = DB_NAME())
GO
SELECT CAST(s.session_id AS bigint), s.original_login_name, COALESCE(s.program_name, N''),
			CAST(CASE WHEN s.original_login_name = ORIGINAL_LOGIN() AND s.program_name = APP_NAME() AND s.database_id = DB_ID() THEN 1 ELSE 0 END AS bit)
		FROM sys.dm_exec_requests AS r JOIN sys.dm_exec_sessions AS s ON s.session_id = r.blocking_session_id
		WHERE r.session_id = @p1
GO
SELECT COALESCE(durability_desc, ''), COALESCE(is_external, 0) FROM sys.tables WHERE object_id = OBJECT_ID(@p1)
GO
SELECT TOP (0) 0 AS sluice_row, 0 AS sluice_deletes, t.[a] INTO [#sluice_keys] FROM (SELECT 1 AS one) AS x LEFT JOIN [dbo].[t] AS t ON 1 = 0
GO
SELECT TOP (0) 0 AS sluice_row, 0 AS sluice_deletes, t.[a], t.[v] INTO [#sluice_keys] FROM (SELECT 1 AS one) AS x LEFT JOIN [dbo].[t] AS t ON 1 = 0
GO
SELECT TOP (0) 0 AS sluice_row, 0 AS sluice_deletes, t.[a], t.[v], t.[order] INTO [#sluice_changes] FROM (SELECT 1 AS one) AS x LEFT JOIN [dbo].[t] AS t ON 1 = 0
GO
SELECT TOP (0) namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties INTO #sluice_parked FROM sluice_dead_letters
GO
SELECT TOP (@p5) id, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties FROM sluice_dead_letters
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND status = 'retry' AND next_attempt <= CAST(SYSUTCDATETIME() AS datetime2(6))
		ORDER BY sequence_number, id
GO
SELECT TOP (@p6) id, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties FROM sluice_dead_letters
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND copied = 0 AND id > @p5 ORDER BY id
GO
SELECT epoch FROM sluice_checkpoints WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4
GO
SELECT epoch, began_incarnation FROM sluice_leases WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4
GO
SELECT g.sluice_row, g.sluice_deletes, CASE WHEN t.[a] IS NULL THEN 0 ELSE 1 END, CASE WHEN (t.[v] IS NULL OR t.[v] <= g.[v]) THEN 1 ELSE 0 END, CASE WHEN g.[v] IS NOT NULL AND (t.[v] IS NULL OR t.[v] < g.[v]) THEN 1 ELSE 0 END FROM (SELECT s.*, ROW_NUMBER() OVER (PARTITION BY s.[a] ORDER BY CASE WHEN s.[v] IS NULL THEN 1 ELSE 0 END, s.[v] DESC, s.sluice_row DESC) AS sluice_rank FROM [#sluice_keys] AS s) AS g LEFT JOIN [dbo].[t] AS t ON t.[a] = g.[a] WHERE g.sluice_rank = 1 ORDER BY g.[a]
GO
SELECT g.sluice_row, g.sluice_deletes, CASE WHEN t.[a] IS NULL THEN 0 ELSE 1 END, CASE WHEN 1 = 1 THEN 1 ELSE 0 END, 0 FROM (SELECT s.*, ROW_NUMBER() OVER (PARTITION BY s.[a] ORDER BY CASE WHEN s.sluice_row < s.sluice_gone THEN 2 ELSE s.sluice_deletes END, s.sluice_row) AS sluice_rank FROM (SELECT s.*, MAX(CASE WHEN s.sluice_deletes = 1 THEN s.sluice_row ELSE 0 END) OVER (PARTITION BY s.[a]) AS sluice_gone FROM [#sluice_keys] AS s) AS s) AS g LEFT JOIN [dbo].[t] AS t ON t.[a] = g.[a] WHERE g.sluice_rank = 1 ORDER BY g.[a]
GO
SELECT g.sluice_row, g.sluice_deletes, CASE WHEN t.[a] IS NULL THEN 0 ELSE 1 END, CASE WHEN 1 = 1 THEN 1 ELSE 0 END, 0 FROM (SELECT s.*, ROW_NUMBER() OVER (PARTITION BY s.[a] ORDER BY s.sluice_row DESC) AS sluice_rank FROM [#sluice_keys] AS s) AS g LEFT JOIN [dbo].[t] AS t ON t.[a] = g.[a] WHERE g.sluice_rank = 1 ORDER BY g.[a]
GO
SELECT i.name, c.name,
		CASE WHEN i.has_filter = 1 THEN 'filtered' WHEN i.is_disabled = 1 THEN 'disabled' WHEN i.ignore_dup_key = 1 THEN 'made with IGNORE_DUP_KEY' ELSE '' END,
		CAST(c.is_nullable AS bit)
	FROM sys.indexes AS i JOIN sys.index_columns AS x ON x.object_id = i.object_id AND x.index_id = i.index_id
		JOIN sys.columns AS c ON c.object_id = i.object_id AND c.column_id = x.column_id
	WHERE i.object_id = OBJECT_ID(@p1) AND i.is_unique = 1 AND x.is_included_column = 0
	ORDER BY i.name, x.key_ordinal
GO
SELECT id, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) ORDER BY id
GO
SELECT id, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body FROM sluice_dead_letters WHERE id IN (SELECT id FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p4)) AND partition = @p5 AND status IN (SELECT value COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@p6)) AND partition_key + N'.' = @p7 + N'.' AND CHARINDEX(LOWER(@p8), LOWER(error)) > 0 AND failed_at >= @p9 AND failed_at < @p10 AND sequence_number >= @p11 AND sequence_number <= @p12 AND id > @p13 ORDER BY id OFFSET 0 ROWS FETCH NEXT @p14 ROWS ONLY) ORDER BY id
GO
SELECT id, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p4))
GO
SELECT id, sequence_number, event_offset FROM sluice_dead_letters
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND incarnation = @p4 AND partition = @p5 AND sequence_number > @p6 ORDER BY sequence_number
GO
SELECT incarnation, sequence_number, event_offset, owner, epoch, claims, trial_sequence, trial_attempts, trial_error, updated_at, trial_dead_letter, trial_unreturned, CASE WHEN done_epoch = epoch THEN done ELSE '' END, began_sequence, CASE WHEN owner = '' AND done_epoch <> epoch THEN '' ELSE began_how END, (
			SELECT COALESCE(MAX(sequence_number) + 1, 0) FROM sluice_dead_letters
			WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND incarnation = @p4 AND partition = @p5)
		FROM sluice_checkpoints WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p6, NCHAR(31), @p7, NCHAR(31), @p8)) AS binary(32)) AND partition = @p9
GO
SELECT name FROM (SELECT CAST(value AS nvarchar(64)) COLLATE Latin1_General_100_BIN2 AS name FROM OPENJSON(@p1)) AS list
		WHERE EXISTS (SELECT 1 FROM sluice_dead_letters WITH (INDEX (sluice_dead_letters_status)) WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p2, NCHAR(31), @p3, NCHAR(31), @p4)) AS binary(32)) AND partition = name AND status = 'retry' AND next_attempt <= CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
SELECT name, TYPE_NAME(system_type_id) + CASE WHEN collation_name LIKE '%UTF8' AND TYPE_NAME(system_type_id) IN ('char', 'varchar') THEN ' in UTF-8' ELSE '' END, CONCAT(TYPE_NAME(system_type_id), CASE
			WHEN TYPE_NAME(system_type_id) IN ('varchar', 'nvarchar', 'varbinary') AND max_length = -1 THEN '(max)'
			WHEN TYPE_NAME(system_type_id) IN ('char', 'varchar', 'binary', 'varbinary') THEN CONCAT('(', max_length, ')')
			WHEN TYPE_NAME(system_type_id) IN ('nchar', 'nvarchar') THEN CONCAT('(', max_length / 2, ')')
			WHEN TYPE_NAME(system_type_id) IN ('decimal', 'numeric') THEN CONCAT('(', [precision], ',', scale, ')')
			WHEN TYPE_NAME(system_type_id) IN ('datetime2', 'datetimeoffset', 'time') THEN CONCAT('(', scale, ')')
		END,
		CASE WHEN TYPE_NAME(system_type_id) IN ('char', 'varchar', 'text') THEN CONCAT(' in ', collation_name COLLATE DATABASE_DEFAULT) END,
		CASE WHEN is_nullable = 0 THEN ' not null' END,
		CASE WHEN default_object_id <> 0 THEN ' with a default' END,
		CASE WHEN is_identity = 1 OR is_computed = 1 THEN ' generated' END), CAST(max_length AS int), CAST(scale AS int),
		CAST(CASE WHEN is_nullable = 0 AND default_object_id = 0 AND is_identity = 0 AND is_computed = 0 AND TYPE_NAME(system_type_id) <> 'timestamp' THEN 1 ELSE 0 END AS bit),
		CAST(CASE WHEN is_computed = 1 OR is_identity = 1 OR TYPE_NAME(system_type_id) = 'timestamp' THEN 1 ELSE 0 END AS bit),
		CAST(CASE WHEN default_object_id <> 0 THEN 1 ELSE 0 END AS bit) FROM sys.columns WHERE object_id = OBJECT_ID(N'[dbo].[t]') ORDER BY column_id
GO
SELECT origin, s.epoch, low, [top], seen_at, ids FROM sluice_seen AS s
		JOIN (SELECT sequence_number FROM sluice_checkpoints WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4) AS c ON step <= c.sequence_number
		WHERE s.group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND s.partition = @p4 ORDER BY step
GO
SELECT owner, epoch, sequence_number FROM sluice_checkpoints WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4
GO
SELECT partition, incarnation, sequence_number, event_offset, owner, epoch, claims, trial_sequence, trial_attempts, trial_error, updated_at, trial_dead_letter, trial_unreturned, CASE WHEN done_epoch = epoch THEN done ELSE '' END, began_sequence, CASE WHEN owner = '' AND done_epoch <> epoch THEN '' ELSE began_how END FROM sluice_checkpoints WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) ORDER BY partition
GO
SELECT partition, owner, epoch, began_incarnation, COALESCE(DATEDIFF_BIG(millisecond, CAST(SYSUTCDATETIME() AS datetime2(6)), expires_at), 0), renewed_at, CASE WHEN renewed_at > CAST(SYSUTCDATETIME() AS datetime2(6)) THEN 1 ELSE 0 END
		FROM sluice_leases WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) ORDER BY partition
GO
SELECT partition, status, count(*) FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p4)) AND partition = @p5 AND status IN (SELECT value COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@p6)) AND partition_key + N'.' = @p7 + N'.' AND CHARINDEX(LOWER(@p8), LOWER(error)) > 0 AND failed_at >= @p9 AND failed_at < @p10 AND sequence_number >= @p11 AND sequence_number <= @p12 AND id > @p13 GROUP BY partition, status
GO
SELECT partition, status, count(*) FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) GROUP BY partition, status
GO
SELECT partition_key, incarnation, MIN(sequence_number) FROM sluice_dead_letters
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND status <> 'discarded' AND DATALENGTH(partition_key) > 0 AND id NOT IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p5))
		GROUP BY partition_key, DATALENGTH(partition_key), incarnation
GO
SELECT version, oldest_compatible FROM sluice_schema WHERE component = @p1
GO
SET LOCK_TIMEOUT 5000; SET XACT_ABORT OFF; SET IMPLICIT_TRANSACTIONS OFF
GO
UPDATE d SET failed_at = p.failed_at, error = p.error, attempts = p.attempts, status = p.status, next_attempt = p.next_attempt
		FROM sluice_dead_letters AS d JOIN #sluice_parked AS p ON d.group_key = CAST(HASHBYTES('SHA2_256', CONCAT(p.namespace, NCHAR(31), p.topic, NCHAR(31), p.consumer_group)) AS binary(32)) AND d.partition = p.partition AND d.incarnation = p.incarnation AND d.sequence_number = p.sequence_number;
		INSERT INTO sluice_dead_letters (group_key, namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties)
		SELECT CAST(HASHBYTES('SHA2_256', CONCAT(p.namespace, NCHAR(31), p.topic, NCHAR(31), p.consumer_group)) AS binary(32)), namespace, topic, consumer_group, incarnation, partition, sequence_number, event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id, correlation_id, content_type, has_body, body, properties FROM #sluice_parked AS p
		WHERE NOT EXISTS (SELECT 1 FROM sluice_dead_letters AS d WHERE d.group_key = CAST(HASHBYTES('SHA2_256', CONCAT(p.namespace, NCHAR(31), p.topic, NCHAR(31), p.consumer_group)) AS binary(32)) AND d.partition = p.partition AND d.incarnation = p.incarnation AND d.sequence_number = p.sequence_number)
		ORDER BY partition, sequence_number
GO
UPDATE sluice_checkpoints
		SET updated_at = CASE WHEN updated_at <> CAST(SYSUTCDATETIME() AS datetime2(6)) THEN CAST(SYSUTCDATETIME() AS datetime2(6)) ELSE DATEADD(microsecond, 1, updated_at) END
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND owner = @p5 AND epoch = @p6 AND sequence_number = @p7
GO
UPDATE sluice_checkpoints SET
			claims            = CASE WHEN sequence_number = @p1 THEN claims ELSE 1 END,
			trial_sequence    = CASE WHEN sequence_number = @p2 THEN trial_sequence ELSE 0 END,
			trial_dead_letter = CASE WHEN sequence_number = @p3 THEN trial_dead_letter ELSE 0 END,
			trial_error       = CASE WHEN sequence_number = @p4 THEN trial_error ELSE '' END,
			trial_unreturned  = CASE WHEN sequence_number = @p5 THEN trial_unreturned ELSE 0 END,
			trial_attempts    = CASE WHEN sequence_number = @p6 THEN trial_attempts ELSE 0 END,
			sequence_number = @p7, event_offset = @p8, done = @p9, done_epoch = epoch, updated_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p10, NCHAR(31), @p11, NCHAR(31), @p12)) AS binary(32)) AND partition = @p13 AND owner = @p14 AND epoch = @p15 AND sequence_number <= @p16 AND incarnation = @p17
GO
UPDATE sluice_checkpoints SET
			claims = claims + CASE WHEN @p1 > epoch THEN 1 ELSE 0 END,
			done = CASE WHEN done_epoch = epoch THEN done ELSE '' END,
			began_how = CASE WHEN owner = '' AND done_epoch <> epoch THEN '' ELSE began_how END,
			owner = @p2, done_epoch = @p3, epoch = @p4, updated_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p5, NCHAR(31), @p6, NCHAR(31), @p7)) AS binary(32)) AND partition = @p8 AND (epoch < @p9 OR epoch = @p10 AND owner = @p11)
GO
UPDATE sluice_checkpoints SET
			incarnation = @p1, sequence_number = @p2, event_offset = @p3, began_sequence = @p4, began_how = @p5,
			owner = '', done_epoch = epoch + 1, epoch = epoch + 1, claims = 0,
			trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0, done = '', updated_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p6, NCHAR(31), @p7, NCHAR(31), @p8)) AS binary(32)) AND partition = @p9
GO
UPDATE sluice_checkpoints SET
			sequence_number = @p1, event_offset = @p2, began_sequence = @p3, began_how = @p4,
			trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0, done = '', updated_at = CAST(SYSUTCDATETIME() AS datetime2(6)), claims = 1
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p5, NCHAR(31), @p6, NCHAR(31), @p7)) AS binary(32)) AND partition = @p8 AND owner = @p9 AND epoch = @p10 AND sequence_number = @p11
GO
UPDATE sluice_checkpoints SET
			sequence_number = @p1, event_offset = @p2, claims = 1,
			trial_sequence = 0, trial_dead_letter = 0, trial_attempts = 0, trial_error = '', trial_unreturned = 0, done = '', updated_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p3, NCHAR(31), @p4, NCHAR(31), @p5)) AS binary(32)) AND partition = @p6 AND owner = @p7 AND epoch = @p8 AND sequence_number = @p9
GO
UPDATE sluice_checkpoints SET
			trial_sequence = @p1, trial_dead_letter = @p2, trial_attempts = @p3, trial_error = @p4, trial_unreturned = @p5, updated_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p6, NCHAR(31), @p7, NCHAR(31), @p8)) AS binary(32)) AND partition = @p9 AND owner = @p10 AND epoch = @p11 AND sequence_number = @p12
GO
UPDATE sluice_checkpoints SET claims = 0, updated_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND owner = @p5 AND epoch = @p6
GO
UPDATE sluice_checkpoints SET updated_at = @p9 WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND owner = @p5 AND epoch = @p6 AND sequence_number = @p7;
		DECLARE @found int = @@ROWCOUNT, @result int = 0;
		IF @found = 1 EXEC @result = sp_getapplock @Resource = @p8, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = 0;
		SELECT @found, @result
GO
UPDATE sluice_checkpoints SET updated_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND owner = @p5 AND epoch = @p6 AND sequence_number = @p7
GO
UPDATE sluice_dead_letters SET copied = 1 WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p5))
GO
UPDATE sluice_dead_letters SET failed_at = @p1, error = @p2, attempts = @p3, status = @p4, next_attempt = @p5 WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p6, NCHAR(31), @p7, NCHAR(31), @p8)) AS binary(32)) AND id = @p9 AND status = 'retry'
GO
UPDATE sluice_dead_letters SET failed_at = @p1, error = @p2, attempts = @p3, status = @p4, next_attempt = @p5 WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p6, NCHAR(31), @p7, NCHAR(31), @p8)) AS binary(32)) AND partition = @p9 AND id = @p10 AND status = 'retry'
GO
UPDATE sluice_dead_letters SET failed_at = @p1, error = @p2, attempts = @p3, status = @p4, next_attempt = DATEADD(millisecond, CAST(@p5 AS int), CAST(SYSUTCDATETIME() AS datetime2(6)))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p6, NCHAR(31), @p7, NCHAR(31), @p8)) AS binary(32)) AND partition = @p9 AND id = @p10 AND status = 'retry'
GO
UPDATE sluice_dead_letters SET failed_at = @p9, error = @p10, attempts = @p11, status = @p12, next_attempt = @p13
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p5 AND incarnation = @p4 AND sequence_number = @p6;
		IF @@ROWCOUNT = 0
		BEGIN TRY
			INSERT INTO sluice_dead_letters (group_key, namespace, topic, consumer_group, incarnation, partition, sequence_number,
				event_offset, enqueued_at, failed_at, error, attempts, status, next_attempt, partition_key, message_id,
				correlation_id, content_type, has_body, body, properties)
			VALUES (CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)), @p1, @p2, @p3, @p4, @p5, @p6, @p7, @p8, @p9, @p10, @p11, @p12, @p13, @p14, @p15,
				@p16, @p17, @p18, CONVERT(varbinary(max), @p19), @p20);
		END TRY
		BEGIN CATCH
			IF ERROR_NUMBER() NOT IN (2601, 2627) THROW;
			
		UPDATE sluice_dead_letters SET failed_at = @p9, error = @p10, attempts = @p11, status = @p12, next_attempt = @p13
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p5 AND incarnation = @p4 AND sequence_number = @p6;
		END CATCH
GO
UPDATE sluice_dead_letters SET incarnation = @p1 WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p2, NCHAR(31), @p3, NCHAR(31), @p4)) AS binary(32)) AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p5))
GO
UPDATE sluice_dead_letters SET status = 'discarded', next_attempt = NULL WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32))
GO
UPDATE sluice_dead_letters SET status = 'discarded', next_attempt = NULL WHERE id IN (SELECT id FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p4)) AND partition = @p5 AND status IN (SELECT value COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@p6)) AND partition_key + N'.' = @p7 + N'.' AND CHARINDEX(LOWER(@p8), LOWER(error)) > 0 AND failed_at >= @p9 AND failed_at < @p10 AND sequence_number >= @p11 AND sequence_number <= @p12 AND id > @p13 ORDER BY id OFFSET 0 ROWS FETCH NEXT @p14 ROWS ONLY)
GO
UPDATE sluice_dead_letters SET status = 'retry', next_attempt = COALESCE(@p1, CAST(SYSUTCDATETIME() AS datetime2(6))) WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p2, NCHAR(31), @p3, NCHAR(31), @p4)) AS binary(32))
GO
UPDATE sluice_dead_letters SET status = 'retry', next_attempt = COALESCE(@p1, CAST(SYSUTCDATETIME() AS datetime2(6))) WHERE id IN (SELECT id FROM sluice_dead_letters WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p2, NCHAR(31), @p3, NCHAR(31), @p4)) AS binary(32)) AND id IN (SELECT CAST(value AS bigint) FROM OPENJSON(@p5)) AND partition = @p6 AND status IN (SELECT value COLLATE Latin1_General_100_BIN2 FROM OPENJSON(@p7)) AND partition_key + N'.' = @p8 + N'.' AND CHARINDEX(LOWER(@p9), LOWER(error)) > 0 AND failed_at >= @p10 AND failed_at < @p11 AND sequence_number >= @p12 AND sequence_number <= @p13 AND id > @p14 ORDER BY id OFFSET 0 ROWS FETCH NEXT @p15 ROWS ONLY)
GO
UPDATE sluice_leases SET began_incarnation = @p1 WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p2, NCHAR(31), @p3, NCHAR(31), @p4)) AS binary(32)) AND partition = @p5 AND owner = @p6 AND epoch = @p7
GO
UPDATE sluice_leases SET expires_at = CASE WHEN expires_at IS NOT NULL THEN DATEADD(millisecond, DATEDIFF(millisecond, renewed_at, expires_at), CAST(SYSUTCDATETIME() AS datetime2(6))) END, renewed_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND renewed_at > CAST(SYSUTCDATETIME() AS datetime2(6))
GO
UPDATE sluice_leases SET expires_at = DATEADD(millisecond, CAST(@p1 AS int), CAST(SYSUTCDATETIME() AS datetime2(6))), renewed_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p2, NCHAR(31), @p3, NCHAR(31), @p4)) AS binary(32)) AND owner = @p5 AND expires_at IS NOT NULL AND (partition = @p6 AND epoch = @p7 OR partition = @p8 AND epoch = @p9)
GO
UPDATE sluice_leases SET expires_at = DATEADD(millisecond, CAST(@p1 AS int), CAST(SYSUTCDATETIME() AS datetime2(6))), renewed_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p2, NCHAR(31), @p3, NCHAR(31), @p4)) AS binary(32)) AND partition = @p5 AND owner = @p6 AND epoch = @p7 AND expires_at IS NOT NULL
GO
UPDATE sluice_leases SET expires_at = NULL WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p1, NCHAR(31), @p2, NCHAR(31), @p3)) AS binary(32)) AND partition = @p4 AND owner = @p5 AND epoch = @p6
GO
UPDATE sluice_leases SET owner = @p1, epoch = (SELECT MAX(e) FROM (VALUES (epoch + 1), (@p2)) AS v (e)), expires_at = DATEADD(millisecond, CAST(@p3 AS int), CAST(SYSUTCDATETIME() AS datetime2(6))), renewed_at = CAST(SYSUTCDATETIME() AS datetime2(6))
		WHERE group_key = CAST(HASHBYTES('SHA2_256', CONCAT(@p4, NCHAR(31), @p5, NCHAR(31), @p6)) AS binary(32)) AND partition = @p7 AND (expires_at IS NULL OR expires_at <= CAST(SYSUTCDATETIME() AS datetime2(6)) OR owner = @p8)
GO
UPDATE sluice_schema SET version = 1, oldest_compatible = 1, applied_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE component = 'leases';
IF @@ROWCOUNT = 0 INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ('leases', 1, 1, CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
UPDATE sluice_schema SET version = 1, oldest_compatible = 1, applied_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE component = 'store';
IF @@ROWCOUNT = 0 INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ('store', 1, 1, CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
UPDATE sluice_schema SET version = 2, oldest_compatible = 1, applied_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE component = 'leases';
IF @@ROWCOUNT = 0 INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ('leases', 2, 1, CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
UPDATE sluice_schema SET version = 2, oldest_compatible = 1, applied_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE component = 'store';
IF @@ROWCOUNT = 0 INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ('store', 2, 1, CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
UPDATE sluice_schema SET version = 3, oldest_compatible = 1, applied_at = CAST(SYSUTCDATETIME() AS datetime2(6)) WHERE component = 'store';
IF @@ROWCOUNT = 0 INSERT INTO sluice_schema (component, version, oldest_compatible, applied_at) VALUES ('store', 3, 1, CAST(SYSUTCDATETIME() AS datetime2(6)))
GO
UPDATE t SET [v] = g.[v], [order] = g.[order] FROM [dbo].[t] AS t JOIN [#sluice_changes] AS g ON t.[a] = g.[a] AND (t.[v] IS NULL OR t.[v] <= g.[v])
GO
UPDATE t SET [v] = g.[v], [order] = g.[order] FROM [dbo].[t] AS t JOIN [#sluice_changes] AS g ON t.[a] = g.[a] AND 1 = 1
GO
