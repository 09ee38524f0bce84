import { FrameworkError, InvalidIdError, ShardedId, UnknownShardError } from '@framework/core';
import type { Explanation } from '@framework/operator';

import { TransferDecision } from '../transfer/transfer-decision.js';
import { Transfer } from '../transfer/transfer.js';
import type { OperatedTables } from './operated-tables.js';

/** Explains where the money of a transfer is, from both shards; `undefined` when no transfer has the id. */
export async function explainTransfer(
  { transfers, decisions }: OperatedTables,
  id: string,
): Promise<Explanation | undefined> {
  const transfer = await found(() => transfers.findById(ShardedId.of(Transfer, id)));
  if (transfer === undefined) return undefined;
  const { sourceId, destId, amount, currency, state, createdDate, updatedDate, reason } = transfer;
  const source = shardText(sourceId);
  const destination = shardText(destId);
  let decision: TransferDecision | undefined;
  let failure: string | undefined;
  try {
    decision = await decisions.findById(TransferDecision.idOf({ transferId: transfer.id, destId }));
  } catch (error) {
    failure = FrameworkError.find(error)?.code ?? 'internal';
  }
  const sum = `${amount.toFixed()} ${currency}`;
  const about = `Transfer ${id}: ${sum} from wallet ${sourceId.value} on ${source} to ${destId.value} on ${destination}`;
  const decided =
    failure === undefined ? decidedText(decision, source, destination) : undecidedText(destination, failure);
  const sentences = {
    INITIATED: [`${about} is in transit.`, decided],
    COMPLETED: [`${about} is complete.`],
    REFUNDED: [`${about} was refunded: ${reason ?? 'no reason was recorded'}.`],
  }[state];
  return {
    sentences,
    data: {},
    sides: [
      {
        title: 'Source',
        shard: source,
        fields: {
          id,
          state,
          amount: amount.toFixed(),
          currency,
          walletId: sourceId.value,
          createdDate,
          updatedDate,
          reason,
        },
      },
      {
        title: 'Destination',
        shard: destination,
        failure,
        fields: decision && {
          id: decision.id.value,
          state: decision.state,
          amount: decision.amount.toFixed(),
          currency: decision.currency,
          walletId: decision.destId.value,
          createdDate: decision.createdDate,
          reason: decision.reason,
        },
      },
    ],
  };
}

function decidedText(decision: TransferDecision | undefined, source: string, destination: string): string {
  if (decision === undefined)
    return `Its destination has not decided yet: the handler receive-transfer has to handle its TransferInitiatedEvent, which is in the log of ${source}.`;
  return decision.state === 'RECEIVED'
    ? `The money has arrived: the handler settle-transfer has to record that at the source, from the log of ${destination}.`
    : `The destination has refused it (${decision.reason ?? 'no reason was recorded'}): the handler refund-transfer has to return it, from the log of ${destination}. Ask why about the decision ${decision.id.value}.`;
}

function undecidedText(destination: string, failure: string): string {
  return failure === 'unknown-shard'
    ? `The shard ${destination} of its destination is not configured here: give a process that delivers all shards.`
    : `The shard ${destination} of its destination does not answer (${failure}): it decides when its database is back.`;
}

/** `undefined` when the id is none of this service's. */
async function found<Result>(find: () => Promise<Result | undefined>): Promise<Result | undefined> {
  try {
    return await find();
  } catch (error) {
    const known = FrameworkError.find(error);
    if (known instanceof InvalidIdError || known instanceof UnknownShardError) return undefined;
    throw error;
  }
}

function shardText(id: ShardedId<unknown>): string {
  const { group, member } = id.resolveShardIdentifier();
  return `${group}/${member}`;
}
