/* A page as PDF, by whatever converter is installed. */
#ifndef NEARTIE_COLLECTOR_PDF_H
#define NEARTIE_COLLECTOR_PDF_H

#include "err.h"

/* Convert the HTML file to a new PDF file. Names what to install where there is no converter. */
int pdf_convert(const char *html, const char *pdf, struct err *err);

#endif
