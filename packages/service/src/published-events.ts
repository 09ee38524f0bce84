import type { FrameworkConfig } from '@framework/core';
import { type AsyncApiDocument, asyncApiDocument } from '@framework/relay/asyncapi';
import { describeRelays } from '@framework/relay/config';

import type { PublishedEvents, ServiceDescription } from './service-definition.js';
import { namesOf } from './service-names.js';

/**
 * Describes the events that an application publishes by its relays.
 *
 * @param config names the hosts of brokers: only for documents that not everybody can read. Default: no broker
 */
export function publishedEvents(
  definition: Pick<ServiceDescription, 'name'>,
  events: PublishedEvents,
  config?: FrameworkConfig,
): AsyncApiDocument {
  const relays = config === undefined ? {} : describeRelays(config);
  const namespace = config?.namespace ?? namesOf(definition).namespace;
  return asyncApiDocument({ ...relays, ...events, namespace });
}
