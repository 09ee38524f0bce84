CREATE TABLE "transfer_decisions" (
	"id" uuid PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"created_date" timestamp with time zone NOT NULL,
	"updated_date" timestamp with time zone NOT NULL,
	"state" text NOT NULL,
	"transfer_id" uuid NOT NULL,
	"dest_id" uuid NOT NULL,
	"amount" numeric(38, 18) NOT NULL,
	"currency" text NOT NULL,
	"reason" text
);
--> statement-breakpoint
-- Processes of the version before do not know decisions: were they to receive or to refund a transfer now, its money could
-- be made twice. Their steps are refused from here on, and tried again until a process of this version takes them.
CREATE FUNCTION "refuse_transfer_step_without_decision"() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING errcode = 'serialization_failure',
    message = 'transfers are decided by their destination now: stop the processes of the version before';
END
$$;
--> statement-breakpoint
CREATE TRIGGER "transfer_step_without_decision" BEFORE INSERT ON "eventlog"."idempotency_keys" FOR EACH ROW
WHEN (NEW.action_name = 'ReceiveTransferAction'
  OR (NEW.action_name = 'RefundTransferAction' AND NEW.key LIKE 'receive-transfer/%'))
EXECUTE FUNCTION "refuse_transfer_step_without_decision"();
--> statement-breakpoint
-- What was received before there were decisions counts as decided. The ids are those of ShardedId.derive.
INSERT INTO "transfer_decisions"
  ("id", "version", "created_date", "updated_date", "state", "transfer_id", "dest_id", "amount", "currency")
SELECT
  (left(transfer_id, 13) || '-7' || left(digest, 3) || substr(dest_id, 19, 6) || substr(digest, 4, 12))::uuid,
  1, created_date, created_date, 'RECEIVED', transfer_id::uuid, dest_id::uuid, amount::numeric, currency
FROM (
  SELECT received.payload ->> 'transferId' AS transfer_id, received.model_id AS dest_id,
    encode(sha256(convert_to('TransferDecision/' || (received.payload ->> 'transferId'), 'UTF8')), 'hex') AS digest,
    received.payload ->> 'amount' AS amount, wallets.currency,
    date_trunc('milliseconds', received.created_date) AS created_date
  FROM "eventlog"."events" AS received JOIN "wallets" ON wallets.id = received.model_id::uuid
  WHERE received.event_type = 'WalletTransferReceivedEvent'
) AS receipts
ON CONFLICT DO NOTHING;
--> statement-breakpoint
CREATE INDEX "transfer_decisions_transfer_idx" ON "transfer_decisions" USING btree ("transfer_id");
--> statement-breakpoint
CREATE INDEX "transfers_in_transit_idx" ON "transfers" USING btree ("created_date") WHERE state = 'INITIATED';
--> statement-breakpoint
ALTER TABLE "wallets" ALTER COLUMN "balance" SET DATA TYPE numeric(48, 18);
