/** Tells the client by which id the log knows its request; every answer has it. */
export const requestIdHeader = 'x-request-id';
