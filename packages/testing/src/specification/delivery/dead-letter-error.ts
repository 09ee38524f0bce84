import type { ParkedRow } from '@framework/core';
import { SpecificationError } from '../specification-error.js';
import type { DeliveryReport } from './delivery-run.js';

/** What a handler threw last at an event that it gave up. */
export function lastErrorAt({ handler, event }: ParkedRow, { attempts }: DeliveryReport): unknown {
  return attempts.findLast((attempt) => attempt.handler === handler && attempt.eventId === event.id)?.error;
}

/** Says what was given up, with what the handler threw last as the cause. */
export function deadLetterError(row: ParkedRow, report: DeliveryReport): SpecificationError {
  const { handler, event, attempts, error } = row;
  return new SpecificationError(
    'dead-letter',
    `${handler} gave up ${event.type} of ${event.modelName} ${event.modelId} after ${attempts} attempts: ${error}`,
    { cause: lastErrorAt(row, report) },
  );
}
